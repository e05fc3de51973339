"""Plans as graphs: what is refused, what may start, what is kept, and plans as text."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.orchestration.plan_text import from_markdown, to_markdown, to_mermaid, view
from aar.protocol.errors import PlanningError
from aar.protocol.events import PlanEvent, PlanItem
from aar.tools.builtin.planning_graph import (
    SATISFIED,
    advice,
    changes,
    graph_problem,
    in_order,
    ready,
    waiting_chain,
    with_completed,
)

HERE = Path(__file__).parent


def item(name: str, *needs: str, **fields: object) -> PlanItem:
    return PlanItem.model_validate({"id": name, "title": f"Do {name}", "depends_on": needs, **fields})


@st.composite
def graphs(draw: st.DrawFn, states: tuple[str, ...] = ("pending",)) -> list[PlanItem]:
    """Steps without a circle: each needs only some of those before it; then their order is shuffled."""
    count = draw(st.integers(1, 6))
    items: list[PlanItem] = []
    for place in range(count):
        needs = draw(st.sets(st.sampled_from(range(place)), max_size=3)) if place else set[int]()
        status = draw(st.sampled_from(states))
        items.append(item(str(place), *(str(each) for each in sorted(needs)), status=status))
    return draw(st.permutations(items))


@given(graphs())
def test_a_graph_without_a_circle_is_taken_and_put_in_order(items: list[PlanItem]) -> None:
    assert graph_problem(items) is None
    places = {each.id: place for place, each in enumerate(in_order(items))}
    assert all(places[needed] < places[each.id] for each in items for needed in each.depends_on)


@given(graphs(), st.data())
def test_an_arrow_back_is_refused_with_its_path(items: list[PlanItem], data: st.DataObject) -> None:
    order = in_order(items)
    first = data.draw(st.sampled_from(order))
    last = data.draw(st.sampled_from([each for each in order if _leads(items, each.id, first.id)]))
    circle = [
        each.model_copy(update={"depends_on": (*each.depends_on, last.id)}) if each.id == first.id else each
        for each in items
    ]
    problem = graph_problem(circle)
    assert problem is not None
    path = problem.partition("circle: ")[2].rstrip(".").split(" needs ")
    assert path[0] == path[-1]
    by_id = {each.id: each for each in circle}
    assert all(after in by_id[before].depends_on for before, after in pairwise(path))


def _leads(items: list[PlanItem], start: str, end: str) -> bool:
    by_id = {each.id: each for each in items}
    return start == end or any(_leads(items, needed, end) for needed in by_id[start].depends_on)


def test_an_id_that_does_not_exist_is_refused_with_who_needs_it() -> None:
    problem = graph_problem([item("a"), item("b", "c")])
    assert problem == "Item b depends on c, which does not exist: b needs c. There are: a, b."
    assert graph_problem([item("a"), item("a")]) == "Two items have the id a; ids must differ."
    assert graph_problem([item("a", "a")]) == "These items wait for each other in a circle: a needs a."


@given(graphs(("pending", "completed", "skipped", "failed", "executing")))
def test_what_may_start_waits_for_nothing_and_all_else_has_a_chain_to_its_cause(
    items: list[PlanItem],
) -> None:
    states = {each.id: each.status for each in items}
    free = {each.id for each in ready(items)}
    for each in items:
        held = [needed for needed in each.depends_on if states[needed] not in SATISFIED]
        assert (each.id in free) == (each.status == "pending" and not held)
        chain = waiting_chain(items, each.id)
        by_id = {one.id: one for one in items}
        assert chain[0] == each.id
        assert len(chain) == len(set(chain))
        assert all(after in by_id[one].depends_on for one, after in pairwise(chain))
        assert bool(held) == (len(chain) > 1)
        assert all(needed in SATISFIED for needed in (states[n] for n in by_id[chain[-1]].depends_on))


@given(graphs(("pending", "completed", "failed", "skipped")), graphs())
def test_a_new_plan_keeps_what_is_completed_as_it_was(before: list[PlanItem], after: list[PlanItem]) -> None:
    kept = with_completed(before, after)
    done = [each for each in before if each.status == "completed"]
    assert [each for each in kept if each.status == "completed"] == done
    assert {each.id for each in kept} == {each.id for each in (*done, *after)}
    assert all(each.failures == 0 for each in kept if each.status != "completed")


def test_the_difference_of_two_plans_names_each_step_that_differs() -> None:
    before = [item("1"), item("2", "1"), item("3")]
    after = [item("1"), item("2", "1", done_when="true", detail="x"), item("4", "2")]
    assert changes(before, after) == [
        "- 3. Do 3",
        "~ 2. Do 2: detail none → x; done_when none → true",
        "+ 4. Do 4 (after 2)",
    ]
    assert changes(before, before) == []


def test_a_plan_of_many_steps_or_without_checks_is_remarked_upon() -> None:
    assert advice([item("1", done_when="true"), item("2")]) == [
        "Nothing tells when 2 is done; give done_when."
    ]
    many = advice([item(str(n), done_when="true") for n in range(21)])
    assert many == ["21 steps are many; join those that belong together."]


# --- plans as text ----------------------------------------------------------------------------------------

WORDS = st.sampled_from(["a", "B2", "ünder", "(x)", "#1", "##", "`c`", "d. e", "<b>", "\\", "after:", "-"])
DETAIL = st.lists(st.sampled_from(["", "## 9. no", "# x", "after: 1", "\\# y", "plain words"]), max_size=4)
DRESSED = st.fixed_dictionaries(
    {
        "title": st.lists(WORDS, min_size=1, max_size=3).map(" ".join),
        "detail": DETAIL.map(lambda lines: "\n".join(lines).strip()),
        "agent": st.sampled_from([None, "coder"]),
        "files": st.lists(WORDS, max_size=2).map(tuple),
        "read_only": st.booleans(),
        "done_when": st.sampled_from([None, "true", "file: a.txt", "judge: all is well"]),
        "status": st.sampled_from(["pending", "completed", "failed", "skipped"]),
    }
)


@given(st.lists(DRESSED, min_size=1, max_size=3))
def test_a_plan_comes_back_from_its_markdown(dresses: list[dict[str, object]]) -> None:
    items = [item(str(place), *(["0"] if place else []), **fields) for place, fields in enumerate(dresses)]
    plan = PlanEvent(items=tuple(items), goal="Make it good", kind="plan")
    goal, read = from_markdown(to_markdown(plan), HERE)
    assert goal == plan.goal
    assert list(read) == items


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("# Plan: x\n", "The plan has no steps; write each as `## 1. Title`."),
        ("## 1. A\nafter: 2\n", "Item 1 depends on 2, which does not exist"),
        ("## 1. A\nwhatever\n", "Step 1: 'whatever' is no field"),
        ("## 1. A\nstate: odd\n", "Step 1: there is no state 'odd'"),
        ("## 1. A\ndone when: text: a\n", "Step 1: The check 'text: a' needs a file and a pattern"),
        ("## 1. A\nafter: 2\n\n## 2. B\nafter: 1\n", "These items wait for each other in a circle"),
    ],
)
def test_text_that_is_no_plan_is_refused_in_a_sentence(text: str, told: str) -> None:
    with pytest.raises(PlanningError, match=re.escape(told)):
        from_markdown(text, HERE)


def test_mermaid_shows_steps_arrows_and_states_and_nothing_of_a_title_acts() -> None:
    evil = 'x"]; click s1 "javascript:alert(1)" <b>'
    plan = PlanEvent(items=(item("a", status="completed"), item("b", "a", title=evil)), goal="g")
    shown = to_mermaid(plan)
    assert shown.startswith("flowchart TD\n")
    assert "    s1 --> s2" in shown
    assert "    class s1 completed" in shown
    label = next(line for line in shown.splitlines() if line.startswith("    s2["))
    assert label.count('"') == 2
    assert "<" not in label
    assert view(plan).splitlines()[:2] == ["g (draft, 1 of 2 done)", "✓ a. Do a"]
