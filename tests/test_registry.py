"""Plug-ins are built from tables by name, and everything wrong with a table is said at once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal

import pytest

from balancesim import external
from balancesim.registry import Fault, OptionError, build, build_class, by_name, help_line, kind_of
from balancesim.scenario.families import FAMILIES, classes_of


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Point:
    x_m: float
    y_m: float


@dataclass(frozen=True)
class Everything:
    """Has an option of every type.

    More text.
    """

    name: ClassVar[str] = "everything"

    rate_hz: float
    limit_s: float = math.inf
    count: int = 1
    on: bool = True
    file: str = ""
    colour: Colour = Colour.RED
    side: Literal["left", "right"] = "left"
    weights: tuple[float, ...] = ()
    pair: tuple[float, int] = (0.0, 0)
    maybe: float | None = None
    names: Mapping[str, float] = field(default_factory=dict)
    point: Point = Point(0.0, 0.0)

    def __post_init__(self) -> None:
        if self.rate_hz <= 0:
            raise ValueError(f"rate_hz must be positive, got {self.rate_hz}")
        if self.count == 13:
            raise ValueError("an unlucky table")


@dataclass(frozen=True)
class Wrapper:
    """Holds another plug-in."""

    name: ClassVar[str] = "wrapper"

    inner: Everything = field(metadata={"family": ("thing", (Everything,))})


class Plain:
    """Not a dataclass."""

    def __init__(self, size, *, colour="red"):
        if size < 0:
            raise ValueError("size must be at least 0")
        self.size, self.colour = size, colour


FAMILY = (Everything, Wrapper, Plain)


def faults_of(options) -> dict[str, str]:
    with pytest.raises(OptionError) as caught:
        build("thing", FAMILY, options)
    return {fault.key: fault.message for fault in caught.value.faults}


def test_a_table_becomes_an_instance_with_converted_options() -> None:
    """Integers serve as floats, lists as tuples, names as enum members, tables as dataclasses and mappings."""
    built = build(
        "thing",
        FAMILY,
        {
            "kind": "everything", "rate_hz": 3, "limit_s": math.inf, "colour": "blue", "side": "right",
            "weights": [1, 2.5], "pair": [1, 2], "maybe": 4, "names": {"a": 1}, "point": {"x_m": 1, "y_m": 2},
        },
    )  # fmt: skip
    expected = Everything(
        rate_hz=3.0, colour=Colour.BLUE, side="right", weights=(1.0, 2.5), pair=(1.0, 2), maybe=4.0,
        names={"a": 1.0}, point=Point(1.0, 2.0),
    )  # fmt: skip
    assert expected == built
    assert float is type(built.rate_hz)


def test_a_bare_name_is_a_table_without_options() -> None:
    """``fading = "none"`` is ``fading = {kind = "none"}``."""
    assert faults_of("everything") == {"rate_hz": "is missing"}
    assert Plain is by_name("thing", FAMILY, "Plain")


def test_an_unknown_kind_lists_the_choices_and_the_nearest_match() -> None:
    """A typing error in a name costs one look at the message."""
    message = faults_of({"kind": "everythin"})["kind"]
    assert message == "unknown thing 'everythin'; did you mean everything? (choices: Plain, everything, wrapper)"


@pytest.mark.parametrize(("options", "key"), [(3, ""), ({}, "kind"), ({"kind": 3}, "kind"), (["everything"], "")])
def test_what_is_no_table_with_a_kind_is_refused(options, key) -> None:
    """A plug-in is a name or a table with ``kind``."""
    assert key in faults_of(options)


def test_all_faults_of_a_table_are_reported_in_its_order() -> None:
    """Unknown options, wrong types and missing options come together."""
    faults = faults_of({"kind": "everything", "rat_hz": 3, "count": 1.5, "on": 1, "side": "lft"})
    assert {
        "rat_hz": "unknown option; did you mean rate_hz?",
        "count": "must be a whole number, got 1.5",
        "on": "must be true or false, got 1",
        "side": "must be one of left, right, got 'lft'; did you mean left?",
        "rate_hz": "is missing",
    }.items() <= {k: v.partition(" (options")[0] for k, v in faults.items()}.items()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"rate_hz": "3"}, "must be a number, got '3'"),
        ({"rate_hz": True}, "must be a number, got True"),
        ({"rate_hz": math.nan}, "must be a finite number, got nan"),
        ({"rate_hz": math.inf}, "must be a finite number, got inf"),
        ({"rate_hz": 1.0, "limit_s": math.nan}, "must be a finite number, got nan"),
        ({"rate_hz": 1.0, "count": True}, "must be a whole number, got True"),
        ({"rate_hz": 1.0, "file": 3}, "must be a string, got 3"),
        ({"rate_hz": 1.0, "weights": 3}, "must be a list, got 3"),
        ({"rate_hz": 1.0, "weights": [1, "2"]}, "entry 2 must be a number, got '2'"),
        ({"rate_hz": 1.0, "pair": [1]}, "must have 2 entries, got 1"),
        ({"rate_hz": 1.0, "maybe": "x"}, "must be a number, got 'x'"),
        ({"rate_hz": 1.0, "colour": "green"}, "must be one of red, blue, got 'green'"),
        ({"rate_hz": 1.0, "colour": 3}, "must be one of red, blue, got 3"),
        ({"rate_hz": 1.0, "names": 3}, "must be a table, got 3"),
        ({"rate_hz": 1.0, "point": 3}, "must be a table, got 3"),
    ],
)
def test_a_wrong_value_is_reported_with_its_rule(option, message) -> None:
    """Types are strict: no string or bool for a number; NaN never, infinity only where the default is infinite."""
    assert [message] == list(faults_of({"kind": "everything", **option}).values())


def test_faults_inside_tables_have_the_whole_path() -> None:
    """Nested tables, mappings and plug-ins report below their own key."""
    nested = {"kind": "everything", "rate_hz": 1, "names": {"a": "x"}, "point": {"x_m": 1, "z_m": 2}}
    assert {"names.a", "point.z_m", "point.y_m"} == set(faults_of(nested))
    assert {"inner.rate_hz"} == set(faults_of({"kind": "wrapper", "inner": "everything"}))


def test_a_check_of_the_class_is_reported_at_the_field_it_names() -> None:
    """``rate_hz must be positive`` belongs to the key; other messages to the table."""
    assert faults_of({"kind": "everything", "rate_hz": -1}) == {"rate_hz": "must be positive, got -1.0"}
    assert faults_of({"kind": "everything", "rate_hz": 1, "count": 13}) == {"": "an unlucky table"}


def test_a_class_that_is_no_dataclass_takes_its_constructors_parameters() -> None:
    """A user's policy need not be a dataclass."""
    plain = build_class(Plain, {"size": 3, "colour": "blue"})
    assert (plain.size, plain.colour) == (3, "blue")
    assert {"sze", "size"} == set(faults_of({"kind": "Plain", "sze": 3}))
    assert faults_of({"kind": "Plain", "size": -1}) == {"size": "must be at least 0"}


def test_a_fault_reads_as_key_and_message() -> None:
    """The string of a fault is what a user sees after the file's name."""
    assert str(Fault("b", "is missing").under("a")) == "a.b: is missing"
    assert str(Fault("", "is odd")) == "is odd"
    assert str(OptionError([Fault("a", "is odd")])) == "a: is odd"


def test_help_is_the_first_line_of_the_class_docstring() -> None:
    """`balancesim list` shows one line a class."""
    assert help_line(Everything) == "Has an option of every type."
    assert help_line(Colour) == ""


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_listed_class_has_a_name_of_its_own_and_a_help_line(family) -> None:
    """What `balancesim list` shows is complete and unambiguous."""
    classes = classes_of(family)
    names = [kind_of(cls) for cls in classes]
    assert len(names) == len(set(names)) > 0
    assert all(help_line(cls) for cls in classes)


POLICY = "class Mine:\n    def decide(self, problem):\n        return None\n\nclass Not:\n    pass\n"


def test_a_class_is_loaded_from_a_file_and_gets_a_name(tmp_path) -> None:
    """A policy needs ``decide`` alone; its name is its class's by default, and its file is loaded once."""
    (tmp_path / "my_policy.py").write_text(POLICY)
    cls = external.load_external("my_policy.py:Mine", [tmp_path])
    assert cls.name == "Mine"
    assert cls is external.load_external(f"{tmp_path}/my_policy.py:Mine")
    assert len(external.source_sha256(cls)) == 64


def test_the_packages_own_classes_have_no_source_digest() -> None:
    """The commit in a manifest says what they are."""
    assert external.source_sha256(classes_of("policies")[0]) is None


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("my_policy.py:Mien", "my_policy.py has no class 'Mien'; did you mean Mine?"),
        ("my_policy.py:Not", "the class must have a method decide"),
        ("my_policy.py:", "must be file.py:Class or package.module:Class"),
        ("no_such.py:Mine", "no file no_such.py"),
        ("broken.py:Mine", "cannot load broken.py: ZeroDivisionError: division by zero"),
        ("no.such.module:Mine", "cannot import no.such.module: ModuleNotFoundError"),
        ("json:JSONEncoder", "the class must have a method decide"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_line(tmp_path, reference, message) -> None:
    """Whatever a user's file does wrong, the error is one line that names it."""
    (tmp_path / "my_policy.py").write_text(POLICY)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(ValueError) as caught:
        external.load_external(reference, [tmp_path])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def _install(folder, module, value) -> None:
    (folder / f"{module}.py").write_text(POLICY)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{external.POLICY_GROUP}]\n{module} = {value}\n")


def test_entry_points_of_installed_packages_are_found_by_name(tmp_path, monkeypatch) -> None:
    """A package offers policies under the group ``balancesim.policies``."""
    for module, value in [("offered_a", "offered_a:Mine"), ("offered_b", "offered_b:No"), ("offered_c", "json:dumps")]:
        _install(tmp_path, module, value)
    monkeypatch.syspath_prepend(tmp_path)
    assert external.entry_point_names() == ["offered_a", "offered_b", "offered_c"]
    assert external.entry_point_class("offered_a").name == "Mine"
    assert external.entry_point_class("offered_z") is None
    with pytest.raises(ValueError, match="cannot load offered_b from offered_b:No: AttributeError"):
        external.entry_point_class("offered_b")
    with pytest.raises(ValueError, match=r"json:dumps .* is not a class"):
        external.entry_point_class("offered_c")
