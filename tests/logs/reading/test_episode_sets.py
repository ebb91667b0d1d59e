"""Episodes of other libraries: one item is one episode, and what is not clear is refused."""

from types import SimpleNamespace

import numpy as np
import pytest

import dprl


def minari(**changes):
    parts = {
        "id": 0, "observations": [3, 5, 5], "actions": [0, 1], "rewards": [0.0, 1.0],
        "terminations": [False, True], "truncations": [False, False],
    }  # fmt: skip
    return SimpleNamespace(**{**parts, **changes})


def d3rlpy(**changes):
    parts = {"observations": [3, 5], "actions": [0, 1], "rewards": [0.0, 1.0], "terminated": True}
    return SimpleNamespace(**{**parts, **changes})


def without(episode, part):
    delattr(episode, part)
    return episode


def refusal(read, dataset):
    """The message of a refusal, at most three lines of it, with what to do at the end."""
    with pytest.raises(dprl.LogError) as refused:
        read(dataset)
    assert refused.value.do
    assert len(str(refused.value).splitlines()) <= 3
    return str(refused.value)


@pytest.mark.parametrize("ids", [(0, 0), (0, 1, 0), (7, np.int64(7)), (0, "0")])
def test_episodes_with_one_id_are_not_glued(ids):
    message = refusal(dprl.from_minari, [minari(id=i) for i in ids])
    assert f"two episodes have the id {int(ids[0])}: items 0 and {len(ids) - 1}" in message


@pytest.mark.parametrize("name", [1.5, "one", None, [1, 2], float("nan"), float("inf")])
def test_an_id_is_a_whole_number(name):
    assert "is not a whole number" in refusal(dprl.from_minari, [minari(), minari(id=name)])


def test_episodes_without_ids_are_numbered():
    assert dprl.from_minari([without(minari(), "id") for _ in range(3)]).episodes == (0, 1, 2)
    assert dprl.from_d3rlpy([d3rlpy()] * 3).episodes == (0, 1, 2)


@pytest.mark.parametrize(
    "observations",
    [
        ([12, 17, 26], [6, 6, 6], [0, 0, 0]),
        (np.zeros((3, 2)), np.zeros(3)),
        {"glucose": [1, 2, 3]},
        [[1, 2], [3], [4, 5]],
        None,
        5,
    ],
)
def test_observations_in_parts(observations):
    message = refusal(dprl.from_minari, [minari(), minari(id=6, observations=observations)])
    assert "episode 6 has no plain array of observations" in message
    refusal(dprl.from_d3rlpy, [d3rlpy(observations=observations)])


def test_a_tuple_of_labels_is_one_label_per_step():
    assert dprl.from_minari([minari(observations=(3, 5, 5))]).states == (3, 5)


@pytest.mark.parametrize("n", [0, 1, 4, 7])
def test_number_of_observations(n):
    message = refusal(dprl.from_minari, [minari(id=6, observations=list(range(n)))])
    assert f"episode 6 has {n} observations" in message
    refusal(dprl.from_d3rlpy, [d3rlpy(observations=np.zeros((n, 2)))])


def test_as_many_observations_as_steps_or_one_more():
    logs = [dprl.from_minari([minari(observations=list(range(n)))]) for n in (2, 3)]
    assert logs[0].digest() == logs[1].digest()


def test_actions_of_text():
    for actions in (["a", "b"], np.array(["a", "b"], object)):
        assert dprl.from_minari([minari(actions=actions)]).actions == ("a", "b")


def test_one_shape_and_one_kind_of_observations():
    rows, wider = np.zeros((2, 2)), np.zeros((2, 3))
    for other in (wider, [1, 2]):
        message = refusal(dprl.from_d3rlpy, [d3rlpy(observations=rows), d3rlpy(observations=other)])
        assert "different shapes: 2 per step in episode 0" in message
    message = refusal(dprl.from_d3rlpy, [d3rlpy(), d3rlpy(observations=["a", "b"])])
    assert "text in 1 of 2 episodes" in message
    log = dprl.from_d3rlpy([d3rlpy(), d3rlpy(observations=[0.5, 1.5])])
    assert log.features.tolist() == [[3], [5], [0.5], [1.5]]


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ("mujoco/hopper-v0", "the text 'mujoco/hopper-v0' is not a dataset"),
        (None, "NoneType is not a dataset"),
        ([{"observations": [1, 2, 3]}], "a dict, has no observations, actions, rewards"),
        ([without(minari(), "terminations")], "has no terminations"),
        ([minari(), without(minari(id=1), "rewards")], "first: item 1 of the dataset"),
        ([minari(terminations=[True])], "1 values for 2 steps"),
        ([minari(terminations=[])], "0 values for 2 steps"),
        ([minari(terminations=["False", "False"])], "by true or false: other values"),
        ([minari(terminations=None)], "by true or false"),
        ([minari(terminations=[True, True])], "goes on after its end"),
        ([minari(rewards=[])], "episode 0 has no steps"),
        ([minari(rewards=None)], "not one number per step"),
        ([minari(rewards=["much", "little"])], "not one number per step"),
        ([minari(actions={"dose": [1, 2]})], "no array of action numbers"),
        ([minari(actions=[[0, 1]])], "2 action numbers of shape (1, 2)"),
    ],
)
def test_what_is_not_minari(dataset, words):
    assert words in refusal(dprl.from_minari, dataset)


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ("cartpole", "the text 'cartpole' is not a dataset"),
        (SimpleNamespace(**vars(d3rlpy()), terminals=[0, 1]), "SimpleNamespace is not a dataset"),
        ([without(d3rlpy(), "terminated")], "has no terminated"),
        ([d3rlpy(rewards=np.ones((2, 2)))], "their shape is (2, 2)"),
        ([d3rlpy(terminated="False")], "by true or false"),
        ([d3rlpy(terminated=None)], "by true or false"),
        ([d3rlpy(observations=np.zeros((0, 2)), actions=[], rewards=[])], "has no steps"),
    ],
)
def test_what_is_not_d3rlpy(dataset, words):
    assert words in refusal(dprl.from_d3rlpy, dataset)


@pytest.mark.parametrize("read", [dprl.from_minari, dprl.from_d3rlpy])
def test_doses_and_gaps_are_treated_as_in_arrays(read):
    make = minari if read is dprl.from_minari else d3rlpy
    last = [[9.0, 9.0]] if read is dprl.from_minari else []  # after the last step: left out
    episodes = [
        make(**({"id": i} if last else {}), observations=[[1.0, np.nan], [2.0, 3.0 + i], *last],
             actions=[0.0, 0.7 + i], rewards=[0.0, 1.0])
        for i in range(3)
    ]  # fmt: skip
    log = read(episodes, action_bins=[0], missing="flag", feature_names=["a", "b"])
    plain = dprl.from_arrays(
        episode=np.repeat([0, 1, 2], 2), state=log.features, action=[0.0, 0.7, 0.0, 1.7, 0.0, 2.7],
        reward=[0.0, 1.0] * 3, ended=[True] * 6, action_bins=[0], missing="flag", feature_names=["a", "b"],
    )  # fmt: skip
    assert log.digest() == plain.digest()
    assert log.n_actions == 2
    assert log.feature_names == ("a", "b")
    assert log.columns["missing"] == {"a": "flag", "b": "flag"}
    assert 9.0 not in log.features
    with pytest.warns(dprl.MissingWarning):
        read(
            [
                *episodes,
                make(**({"id": 3} if last else {}), observations=[[1.0, 1.0], [2.0, 2.0], *last]),
            ],
            missing="drop-episodes",
            action_bins=[0],
        )
