"""CSV files as people write them: an index of pandas, decimal commas, semicolons, encodings."""

import gzip

import numpy as np
import pytest

import dprl

NAMES = {"episode": "id", "time": "t", "state": "stage", "action": "drug", "reward": "score"}
ROWS = [
    (i, t, "ill" if t else "käse", "ab"[(i + t) % 2], 0.5 * i) for i in range(6) for t in (0, 1)
]


@pytest.fixture
def table():
    import pandas as pd

    return pd.DataFrame(ROWS, columns=list(NAMES.values()))


def test_the_index_of_pandas_is_read_and_left_out(table, tmp_path, run):
    table.to_csv(tmp_path / "plain.csv", index=False)
    table.to_csv(tmp_path / "index.csv")
    plain, indexed = (dprl.read(tmp_path / f"{name}.csv", **NAMES) for name in ("plain", "index"))
    assert indexed.digest() == plain.digest()
    assert indexed.also.names == ()
    assert indexed.also.left_out == {"unnamed column 1": "it has no name: an index, most likely"}
    code, out, _ = run("split", tmp_path / "index.csv", "--by", "id", "--out", "parts")
    assert code == 0, out
    by_name = dprl.read(tmp_path / "index.csv", **{**NAMES, "time": "unnamed column 1"}, also=())
    assert by_name.digest() == plain.digest()


def test_decimal_commas_and_semicolons_are_declared(table, tmp_path, run):
    table.to_csv(tmp_path / "plain.csv", index=False)
    table.to_csv(tmp_path / "comma.csv", index=False, sep=";", decimal=",")
    log = dprl.read(tmp_path / "comma.csv", **NAMES, decimal=",")
    assert log.digest() == dprl.read(tmp_path / "plain.csv", **NAMES).digest()
    with pytest.raises(dprl.LogError, match="'score' must be numbers; it holds '0,0'") as caught:
        dprl.read(tmp_path / "comma.csv", **NAMES)
    assert "decimal=','" in caught.value.do
    options = [x for part, name in NAMES.items() for x in (f"--{part}", name)]
    assert run("check", tmp_path / "comma.csv", *options, "--decimal", ",")[0] == 0
    features = dprl.read(tmp_path / "comma.csv", **{**NAMES, "state": ["score"], "reward": "t",
                                                    "time": None}, decimal=",")  # fmt: skip
    assert features.features.max() == 2.5


def test_a_point_in_numbers_with_a_decimal_comma_is_refused(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("id;t;stage;drug;score\n1;0;ill;a;1.234\n1;1;ill;b;1,5\n")
    with pytest.raises(
        dprl.LogError, match=r"'score' must be numbers; it holds '1\.234'"
    ) as caught:
        dprl.read(path, **NAMES, decimal=",")
    assert "it is 1,5, not 1.5" in caught.value.do


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "ISO-8859-1", "cp1252", "utf-16-le"])
def test_encodings_are_declared(table, tmp_path, encoding, run):
    table.to_csv(tmp_path / "plain.csv", index=False)
    table.to_csv(tmp_path / "other.csv", index=False, encoding=encoding)
    log = dprl.read(tmp_path / "other.csv", **NAMES, encoding=encoding)
    assert log.digest() == dprl.read(tmp_path / "plain.csv", **NAMES).digest()
    with pytest.raises(dprl.LogError):
        dprl.read(tmp_path / "other.csv", **NAMES)
    options = [x for part, name in NAMES.items() for x in (f"--{part}", name)]
    assert run("check", tmp_path / "other.csv", *options, "--encoding", encoding)[0] == 0


def test_a_policy_reads_files_that_are_written_otherwise(table, tmp_path, run):
    table.to_csv(tmp_path / "plain.csv", index=False)
    table.assign(id=table["id"] + 100).to_csv(
        tmp_path / "other.csv", index=False, sep=";", decimal=",", encoding="latin-1"
    )
    options = [x for part, name in NAMES.items() for x in (f"--{part}", name)]
    assert run("fit", tmp_path / "plain.csv", *options, "--gamma", 1, "--n-min", 2)[0] == 0
    code, _, err = run("evaluate", "policy.dprl", tmp_path / "other.csv", "--decimal", ",",
                       "--encoding", "latin-1", "--draws", 20)  # fmt: skip
    assert code == 0, err


def test_gzip_is_read(table, tmp_path):
    table.to_csv(tmp_path / "plain.csv", index=False)
    with gzip.open(tmp_path / "packed.csv.gz", "wb") as stream:
        stream.write((tmp_path / "plain.csv").read_bytes())
    packed = dprl.read(tmp_path / "packed.csv.gz", **NAMES)
    assert packed.digest() == dprl.read(tmp_path / "plain.csv", **NAMES).digest()
    assert np.isfinite(packed.reward).all()


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"decimal": ";"}, "decimal must be '.' or ','"),
        ({"encoding": "klingon"}, "this encoding of text cannot be read"),
        ({"encoding": "rot13"}, "this encoding of text cannot be read"),
    ],
)
def test_what_cannot_be_declared_is_refused(table, tmp_path, how, what):
    table.to_csv(tmp_path / "plain.csv", index=False)
    with pytest.raises(dprl.ParameterError, match=what):
        dprl.read(tmp_path / "plain.csv", **NAMES, **how)


def test_labels_that_may_be_one_word_are_pointed_out_with_counts(tmp_path):
    path = tmp_path / "d.csv"
    drugs = ["noradrenaline", "Noradrenalin", "noradrenaline", "dopamine", "arm a", "arm b"]
    rows = [f"{i},0,s,{drug},1" for i, drug in enumerate(drugs)]
    path.write_text("\n".join(["id,t,stage,drug,score", *rows]))
    finding = next(f for f in dprl.check(path, **NAMES).findings if f.rule == "near_labels")
    assert finding.level == "note"
    assert "'Noradrenalin' (1 rows) and 'noradrenaline' (2)." in finding.what
    assert "arm" not in finding.what


@pytest.mark.parametrize(
    ("a", "b", "near"),
    [
        ("fluids", "fluid", True),
        ("vasopressor", "vasoperssor", True),
        ("stage 1", "stage 11", False),
        ("wait", "waits", False),
        ("ward a", "ward b", False),
        ("heparin", "heparin", False),
        ("insulin", "aspirin", False),
    ],
)
def test_what_may_be_one_word(a, b, near):
    from dprl.logs.checking.labels import near_words

    assert near_words(a, b) is near_words(b, a) is near


def settings_for(file, **more):
    """dprl.toml with the columns of `NAMES`, one file and how it is written."""
    parts = {"files": [str(file)], **NAMES, "state": [NAMES["state"]], **more}
    return "[log]\n" + "".join(f"{name} = {value!r}\n" for name, value in parts.items())


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-8"])
def test_a_table_is_split_in_its_own_encoding(table, tmp_path, encoding, run):
    import pandas as pd

    table["stage"] = table["stage"] + ' ü;,\n"'
    path = tmp_path / "other.csv"
    table.to_csv(path, index=False, sep=";", decimal=",", encoding=encoding)
    asked = ["split", path, "--by", "id", "--encoding", encoding, "--out"]
    assert run(*asked, tmp_path / "parts")[0] == 0
    written = {"decimal": ",", "encoding": encoding}
    whole = dprl.read(path, **NAMES, **written)
    for side, wanted in zip(("train", "test"), whole.split(0.5, seed=0), strict=True):
        rows = pd.read_csv(tmp_path / "parts" / f"{side}.csv", **written)
        before = table[table["id"].isin(wanted.episodes)].reset_index(drop=True)
        pd.testing.assert_frame_equal(rows, before)
    (tmp_path / "dprl.toml").write_text(settings_for(path, **written))
    code, _, err = run("split", "--by", "id", "--out", tmp_path / "again")
    assert code == 0, err
    for side in ("train.csv", "test.csv"):
        first, second = (tmp_path / folder / side for folder in ("parts", "again"))
        assert first.read_bytes() == second.read_bytes()
    code, _, err = run("fit", tmp_path / "again" / "train.csv", "--gamma", 1, "--n-min", 1)
    assert code == 0, err


def test_a_split_that_its_encoding_cannot_hold_writes_nothing(table, tmp_path, run):
    folder = tmp_path / "ward=α"
    folder.mkdir()
    table.to_csv(folder / "other.csv", index=False, encoding="latin-1")
    code, _, err = run("split", folder / "other.csv", "--by", "id", "--out", tmp_path / "parts",
                       "--encoding", "latin-1", "--partitions")  # fmt: skip
    assert (code, "the table cannot be written in latin-1" in err) == (1, True)
    assert "Leave --partitions out" in err
    assert list((tmp_path / "parts").iterdir()) == []
    code, _, err = run("split", folder / "other.csv", "--by", "id", "--out", tmp_path / "parts")
    assert (code, list((tmp_path / "parts").iterdir())) == (1, [])


def test_folders_are_columns_of_the_parts_where_the_settings_say_so(table, tmp_path, run):
    folder = tmp_path / "ward=a"
    folder.mkdir()
    table.to_csv(folder / "other.csv", index=False)
    (tmp_path / "dprl.toml").write_text(
        settings_for(folder / "other.csv") + "partitions = true\n[split]\nby = 'id'\n"
    )
    code, _, err = run("split", "--out", "parts")
    assert code == 0, err
    header = (tmp_path / "parts" / "train.csv").read_text().splitlines()[0]
    assert header == ",".join([*NAMES.values(), "ward"])


@pytest.mark.parametrize(
    ("cells", "decimal", "words"),
    [
        (["40,3", "41,0"], ".", "Where this is a decimal comma, say decimal=',';"),
        (["40", "40,3"], ".", "Where this is a decimal comma, say decimal=',';"),
        (["40,3", "<0,5"], ",", "Write a number of your choice for a value beyond"),
        (["40.3", "<0.5"], ".", "Write a number of your choice for a value beyond"),
        (["40,3", "40.3"], ",", "Convert it to numbers (1,5, not 1.5;"),
        (["40", "high"], ".", "Convert it to numbers (1.5, not 1,5;"),
    ],
)
def test_a_feature_that_is_no_number_says_what_to_do(tmp_path, cells, decimal, words):
    rows = [f"{i};{t};{cell};a;0" for i in (1, 2) for t, cell in enumerate(cells)]
    path = tmp_path / "d.csv"
    path.write_text("\n".join(["id;t;crp;drug;score", *rows]) + "\n")
    with pytest.raises(dprl.LogError, match="'crp' must be numbers; it holds") as caught:
        dprl.read(path, **{**NAMES, "state": ["crp"]}, decimal=decimal)
    assert caught.value.do.startswith(words)
    assert "categorical=['crp']" in caught.value.do
    if "<" in cells[1]:
        assert "(missing=)" in caught.value.do


def test_a_reward_beyond_a_limit_says_what_to_do(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("id;t;stage;drug;score\n1;0;ill;a;1,5\n1;1;ill;b;<0,5\n")
    with pytest.raises(dprl.LogError, match="'score' must be numbers; it holds '<0,5'") as caught:
        dprl.read(path, **NAMES, decimal=",")
    assert caught.value.do.startswith("Write a number of your choice for a value beyond")


def test_a_dataframe_with_commas_is_not_sent_to_an_option_of_files(table):
    table["crp"] = "40,3"
    with pytest.raises(dprl.LogError, match="'crp' must be numbers; it holds '40,3'") as caught:
        dprl.from_frame(table, **{**NAMES, "state": ["crp"]})
    assert "decimal" not in caught.value.do


def test_act_reads_a_table_as_the_settings_say(table, tmp_path, run):
    table["crp"] = table["score"] + 0.25
    path = tmp_path / "other.csv"
    table.to_csv(path, index=False, sep=";", decimal=",", encoding="cp1252")
    written = {"decimal": ",", "encoding": "cp1252"}
    log = dprl.read(path, **{**NAMES, "state": ["crp"]}, **written)
    dprl.DPRLContinuous(gamma=1, n_min=1, radius=1).fit(log).save(tmp_path / "policy.dprl")
    flags = ["--decimal", ",", "--encoding", "cp1252"]
    code, asked, err = run("act", "policy.dprl", path, *flags)
    assert code == 0, err
    (tmp_path / "dprl.toml").write_text(settings_for(path, **written))
    code, out, err = run("act", "policy.dprl", path)
    assert (code, out) == (0, asked), err
    assert "käse" in out
    table.to_csv(tmp_path / "plain.csv", index=False)
    flags = ["--decimal", ".", "--encoding", "utf-8"]  # options come before settings
    code, out, err = run("act", "policy.dprl", tmp_path / "plain.csv", *flags)
    assert code == 0, err
    assert "käse" in out


@pytest.mark.parametrize("before", [0, 100_000])
def test_a_file_that_is_not_utf_8_names_the_encoding_of_windows_first(tmp_path, before):
    path = tmp_path / "d.csv"
    rows = "1;0;ill;a;0\n" * before
    path.write_bytes(f"id;t;stage;drug;score\n{rows}1;1;käse;a;0\n".encode("cp1252"))
    with pytest.raises(dprl.LogError, match=r"'?d.csv'? could not be read as CSV") as caught:
        dprl.read(path, **NAMES)
    assert "encoding='cp1252'" in caught.value.do
    assert caught.value.do.index("cp1252") < caught.value.do.index("latin-1")


def test_categories_of_a_state_that_look_alike_are_pointed_out(tmp_path):
    path = tmp_path / "stays.csv"
    rows = ["patient,ward,age,drug,score"]
    wards = ["Innere", "Innere ", "Chirurgie", "Chirurgi", ""]
    rows += [f"{i},{wards[i % 5]},{50 + i},{'old' if i % 2 else 'Old'},1" for i in range(20)]
    path.write_text("\n".join(rows) + "\n")
    names = {"episode": "patient", "state": ["ward", "age"], "action": "drug", "reward": "score"}
    by_rule = {f.rule: f for f in dprl.check(path, **names).findings}
    assert by_rule["look_alikes"].what.startswith("'drug' and 'ward' have labels that differ only")
    assert "'Chirurgi' (4 rows) and 'Chirurgie' (4)" in by_rule["near_labels"].what
    fewer = dprl.check(path, **names, labels="trim,casefold")
    assert "look_alikes" not in {f.rule for f in fewer.findings}


def test_a_category_in_two_unicode_spellings_is_pointed_out(tmp_path):
    path = tmp_path / "stays.csv"
    wards = ["Gef\u00e4ss", "Gefa\u0308ss"]
    rows = [f"{i},{wards[i % 2]},{i},a,1" for i in range(8)]
    path.write_text("\n".join(["patient,ward,age,drug,score", *rows]) + "\n", encoding="utf-8")
    names = {"episode": "patient", "state": ["ward", "age"], "action": "drug", "reward": "score"}
    assert any(
        f.rule == "spellings" and "'ward'" in f.what for f in dprl.check(path, **names).findings
    )
