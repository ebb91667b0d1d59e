"""Categories and missing values among the features of a log: read, kept, written, refused."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

import dprl
from dprl.learners.baselines.fitted import FittedSPIBB
from dprl.logs.encoding.categories import MOST_LEVELS
from dprl.logs.log import Log

COLUMNS = {"episode": "id", "state": ["ward", "age", "fever"], "action": "drug", "reward": "score"}


def rows():
    return {
        "id": [1, 1, 2, 2, 3, 3],
        "ward": ["ICU", None, "HDU", "ICU", "HDU", "general ward"],
        "age": [40.0, 41.5, None, 60.0, 70.0, 71.0],
        "fever": [True, False, True, True, False, True],
        "drug": ["a", "b", "a", "b", "b", "a"],
        "score": [0.0, 1.0, 0.5, 0.0, 1.0, 0.0],
    }


def log():
    return dprl.from_frame(pd.DataFrame(rows()), **COLUMNS)


def test_text_and_truth_values_become_categories():
    read = log()
    assert read.levels == (("HDU", "ICU", "general ward"), None, ("false", "true"))
    assert read.categories["ward"] == ("HDU", "ICU", "general ward")
    np.testing.assert_array_equal(
        read.features,
        [[1, 40, 1], [np.nan, 41.5, 0], [0, np.nan, 1], [1, 60, 1], [0, 70, 0], [2, 71, 1]],
    )
    assert read.missing.tolist() == [1, 1, 0]
    assert "3 features (2 categories) · 2 values missing" in repr(read)


def sources(tmp_path):
    table = pd.DataFrame(rows())
    table.to_csv(tmp_path / "log.csv", index=False)
    table["fever"] = table["fever"].astype(str).str.lower()
    table.to_csv(tmp_path / "words.csv", index=False)
    pd.DataFrame(rows()).to_parquet(tmp_path / "log.parquet")
    yield dprl.read(tmp_path / "log.parquet", **COLUMNS)
    yield dprl.read(tmp_path / "log.csv", **COLUMNS)  # in which pandas writes True and False
    yield dprl.read(tmp_path / "words.csv", **COLUMNS)
    yield dprl.from_frame(pl.DataFrame(rows()), **COLUMNS)
    yield dprl.from_frame(
        pl.DataFrame(rows()).with_columns(pl.col("ward").cast(pl.Categorical)), **COLUMNS
    )
    yield dprl.from_frame(pl.DataFrame(rows()).to_arrow(), **COLUMNS)
    yield dprl.from_frame(pd.DataFrame(rows()).astype({"ward": "category"}), **COLUMNS)
    with duckdb.connect() as con:
        relation = con.read_parquet(str(tmp_path / "log.parquet"))
        yield dprl.from_frame(relation, **COLUMNS)
    given = rows()
    yield dprl.from_arrays(
        episode=given["id"], action=given["drug"], reward=given["score"], feature_names=COLUMNS["state"],
        state=list(zip(given["ward"], given["age"], given["fever"], strict=True)),
    )  # fmt: skip


def test_every_source_gives_the_same_log(tmp_path):
    for other in sources(tmp_path):
        assert other.levels == log().levels
        np.testing.assert_array_equal(other.features, log().features)
        assert other.digest() == log().digest()


@pytest.mark.parametrize("name", ["again.parquet", "again.csv"])
def test_written_and_read_again(name, tmp_path):
    dprl.write(log(), tmp_path / name)
    again = dprl.read(tmp_path / name, **COLUMNS, time="time")
    assert again.levels == log().levels
    assert again.digest() == log().digest()


def test_a_category_called_missing_is_not_written_to_csv(tmp_path):
    bad = dprl.from_frame(pd.DataFrame(rows()).replace({"ward": {"ICU": "NA"}}), **COLUMNS)
    with pytest.raises(dprl.LogError, match="'NA' would not come back"):
        dprl.write(bad, tmp_path / "bad.csv")
    assert not (tmp_path / "bad.csv").exists()
    dprl.write(bad, tmp_path / "fine.parquet")
    assert dprl.read(tmp_path / "fine.parquet", **COLUMNS, time="time").digest() == bad.digest()


def test_parts_of_a_log_keep_levels():
    whole = log()
    part = whole.take([0])
    assert part.levels == whole.levels
    assert part.missing.tolist() == [1, 0, 0]
    alone = dprl.from_frame(pd.DataFrame(rows())[:2], **COLUMNS)
    assert alone.levels != part.levels
    assert alone.digest() == part.digest()  # labels that no row has do not matter
    assert whole.gathered().levels == whole.levels
    for half in whole.split(0.5, seed=1):
        assert half.levels == whole.levels


def test_the_digest_tells_labels_apart():
    other = pd.DataFrame(rows()).replace({"ward": {"ICU": "IMC"}})
    assert dprl.from_frame(other, **COLUMNS).digest() != log().digest()
    filled = pd.DataFrame(rows()).fillna({"age": 50.0})
    assert dprl.from_frame(filled, **COLUMNS).digest() != log().digest()


def test_numeric_logs_are_what_they_were():
    plain = dprl.from_arrays(
        episode=[1, 1, 2], state=[[7.4, 90], [7.3, 85], [7.4, 100]], action=["a", "b", "b"], reward=[0, 1, 0]
    )  # fmt: skip
    assert plain.levels == ()
    assert plain.digest() == "caa72f34baaf62ebd0ac88f537d09d4d41c3b56b0d865fa096a7bc895c6e9091"
    assert not plain.missing.any()


def test_one_nan_is_as_good_as_another():
    negative = np.copysign(np.nan, -1.0)
    one, two = (
        dprl.from_arrays(episode=[1, 2], state=[[gone], [1.0]], action=["a", "b"], reward=[0, 1])
        for gone in (np.nan, negative)
    )
    assert one.digest() == two.digest()


def test_a_mask_is_kept():
    masked = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    read = dprl.from_arrays(episode=[1, 2], state=masked, action=["a", "b"], reward=[0, 1])
    np.testing.assert_array_equal(read.features, [[1, np.nan], [3, 4]])


def test_numbers_that_are_labels_are_declared(tmp_path):
    table = pd.DataFrame({**rows(), "ward": [3, 5, 3, 5, 12, 3]})
    assert dprl.from_frame(table, **COLUMNS).levels[0] is None
    declared = dprl.from_frame(table, **COLUMNS, categorical=["ward"])
    assert declared.levels[0] == ("12", "3", "5")
    table.to_csv(tmp_path / "log.csv", index=False)
    again = dprl.read(
        tmp_path / "log.csv", **{**COLUMNS, "state": ["ward", "age"]}, categorical=["ward"]
    )
    assert again.levels == (("12", "3", "5"), None)
    assert dprl.check(tmp_path / "log.csv", **COLUMNS, categorical=["ward"]).log.levels[0] == (
        "12",
        "3",
        "5",
    )
    with pytest.raises(dprl.LogError, match="'drug' was declared a category and is no feature"):
        dprl.from_frame(table, **COLUMNS, categorical=["drug"])


@pytest.mark.parametrize("ward", [["1.5", "2", "3", "4", "5", "6"], ["1,5", "2,5", "a", "b", "c", "d"],
                                  ["<5", "high", "low", "a", "b", "c"], ["a", 1.5, "b", "c", "d", "e"]])  # fmt: skip
def test_text_that_may_be_a_number_is_no_label(ward):
    with pytest.raises(dprl.LogError, match="'ward' must be numbers; it holds"):
        dprl.from_frame(pd.DataFrame({**rows(), "ward": ward}), **COLUMNS)


def test_free_text_is_no_category():
    n = MOST_LEVELS + 1
    with pytest.raises(dprl.LogError, match="1,001 different labels"):
        dprl.from_arrays(
            episode=range(n), state=[[f"patient {i}"] for i in range(n)], action=["a"] * n, reward=[0] * n
        )  # fmt: skip


def test_check_counts_missing_values_and_names_categories():
    report = dprl.check(pd.DataFrame(rows()), **COLUMNS)
    assert report.ok
    words = report.details()
    assert "missing on some of 6 rows: 'ward' on 1, 'age' on 1." in words
    assert "2 of 3 features are categories: 'ward' (3 labels), 'fever' (2 labels)" in words
    facts = report.to_dict()["log"]
    assert facts["missing"] == {"ward": 1, "age": 1}
    assert facts["categories"]["fever"] == ["false", "true"]
    assert dprl.check(log()).to_dict()["log"]["missing"] == {"ward": 1, "age": 1}


def test_episodes_with_a_missing_feature_can_be_dropped():
    with pytest.warns(dprl.errors.MissingWarning):
        kept = dprl.from_frame(pd.DataFrame(rows()), **COLUMNS, missing="drop-episodes")
    assert kept.episodes == (3,)
    assert not kept.missing.any()
    assert kept.levels[0] == ("HDU", "general ward")


def test_a_missing_reward_is_still_refused():
    bad = {**rows(), "score": [None, 1.0, 0.5, 0.0, 1.0, 0.0]}
    with pytest.raises(dprl.LogError, match="'score' is missing on 1 of 6 rows"):
        dprl.from_frame(pd.DataFrame(bad), **COLUMNS)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"levels": (("a",),)}, "1 levels for 3 features"),
        ({"levels": (("b", "a", "c"), None, None)}, "not sorted labels"),
        ({"levels": (("a", "b"), None, None)}, "codes outside 0..1"),
    ],
)
def test_a_log_that_contradicts_its_levels_is_refused(changed, match):
    read = log()
    parts = {
        name: getattr(read, name)
        for name in ("starts", "action", "reward", "actions", "features", "feature_names")
    }
    with pytest.raises(dprl.LogError, match=match):
        Log(**parts, **changed)


# -- who cannot use them ---------------------------------------------------------------------


def many(**changed):
    rng = np.random.default_rng(0)
    n = 60
    columns = {
        "x": rng.normal(size=n), "ward": rng.choice(["ICU", "HDU"], n), "fever": rng.random(n) < 0.5, **changed
    }  # fmt: skip
    return pd.DataFrame(
        {"id": np.arange(n), **columns, "drug": rng.choice(["a", "b"], n), "score": rng.random(n)}
    )


def read_many(state, **changed):
    return dprl.from_frame(
        many(**changed), episode="id", state=state, action="drug", reward="score"
    )


gone = np.r_[np.zeros(50), [np.nan] * 10]
USERS = {
    "distances": lambda log: dprl.DPRLContinuous(n_min=2, radius=1.0, gamma=1.0).fit(log),
    "gate": lambda log: dprl.gate(
        dprl.DPRLContinuous(n_min=2, radius=1.0, gamma=1.0), log, value_range=(0, 1)
    ),
    "metric": lambda log: dprl.Metric().fit(log),
    "fitted": lambda log: FittedSPIBB(gamma=1.0, n_min=2, radius=1.0).fit(log),
}


@pytest.mark.parametrize("user", USERS)
def test_who_needs_numbers_says_so(user):
    with pytest.raises(dprl.LogError) as error:
        USERS[user](read_many(["x"], x=gone))
    assert str(error.value).startswith(
        "feature 'x' is missing on 10 of 60 rows.\n  first: id=50, step=0\n"
    )
    assert "dprl.Rules, which gives missing values a side of their own" in str(error.value)
    if user in ("distances", "gate"):  # which make indicators of categories
        assert USERS[user](read_many(["x", "ward"])).feature_names == ("x", "ward=HDU", "ward=ICU")
        return
    with pytest.raises(
        dprl.LogError, match="feature 'ward' is a category of 2 labels, not a number"
    ) as error:
        USERS[user](read_many(["x", "ward"]))
    assert "dprl.Rules" in str(error.value)


def test_truth_values_are_the_numbers_they_were():
    as_truth = read_many(["x", "fever"])
    as_number = read_many(["x", "fever"], fever=many()["fever"].astype(float))
    one, two = (USERS["distances"](log) for log in (as_truth, as_number))
    np.testing.assert_array_equal(one.z, two.z)
    assert one.act([[0.1, True]]) == two.act([[0.1, 1.0]])


def test_a_policy_over_numbers_refuses_a_log_with_missing_values():
    policy = USERS["distances"](read_many(["x"]))
    with pytest.raises(dprl.LogError, match="feature 'x' is missing on 10 of 60 rows"):
        dprl.evaluate(policy, read_many(["x"], x=gone))


def test_no_more_combinations_occur_than_there_are():
    """A gap is a label too, and all gaps are one."""
    n, words = 60, ["x", "y", None]
    table = pd.DataFrame({
        "e": range(n), "a": [words[i % 3] for i in range(n)], "b": [words[i // 3 % 2] for i in range(n)],
        "do": ["go", "stay"] * (n // 2), "r": [0.0] * n,
    })  # fmt: skip
    found = dprl.check(
        table, episode="e", state=["a", "b"], action="do", reward="r", missing={"a": "flag"}
    ).findings
    assert any("6 of 6 combinations occur" in str(f.error()) for f in found)
