"""Which cluster a command means: its options', the environment's, the profile's; and what `kafkapy profile` keeps."""

import json
import os
import re
import stat
from pathlib import Path

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli.command_tree import command_tree
from kafkapy.cli.defaults import NO_DEFAULTS, SERVER_OPTION, Defaults, Setting, defaults_of, profile_taken
from kafkapy.cli.main import connects
from kafkapy.cli.profiles import Profile, ProfileError, Profiles, load, path_of_profiles, save

ANSI = re.compile(r"\x1b\[[0-9;]*m|[│╭╮╰╯─\s]")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "kafkapy" / "profiles.json"


def environment(tmp_path: Path, **variables: str) -> dict[str, str]:
    """An environment whose profile in use is prod, with b1 and its own settings."""
    found = {"XDG_CONFIG_HOME": str(tmp_path), **variables}
    save(path_of_profiles(found), Profiles({"prod": Profile("b1:9092", "/etc/prod")}, "prod"))
    return found


OF_PROFILE = Defaults(Setting("b1:9092", "profile prod"), Setting("/etc/prod", "profile prod"))
SERVERS = {"KAFKAPY_BOOTSTRAP_SERVERS": "b2:9092"}
CONFIG = {"KAFKAPY_COMMAND_CONFIG": "/etc/other"}
OF_SERVERS = Setting("b2:9092", "KAFKAPY_BOOTSTRAP_SERVERS")
OF_CONFIG = Setting("/etc/other", "KAFKAPY_COMMAND_CONFIG")


@pytest.mark.parametrize(
    ("variables", "arguments", "expected"),
    [
        ({}, [], OF_PROFILE),
        (CONFIG, [], Defaults(OF_PROFILE.servers, OF_CONFIG)),
        (SERVERS, [], Defaults(OF_SERVERS, Setting())),
        (SERVERS | CONFIG, ["-b", "x"], Defaults(OF_SERVERS, OF_CONFIG)),
        ({}, ["status", "--data-dir", "d"], NO_DEFAULTS),
        ({}, ["status", "--bootstrap-controller=c:1"], NO_DEFAULTS),
    ],
)
def test_the_environment_wins_over_the_profile(tmp_path: Path, variables, arguments, expected) -> None:
    assert defaults_of(environment(tmp_path, **variables), arguments) == expected


@pytest.mark.parametrize(
    "arguments",
    [["-b", "x:1"], ["-bx:1"], ["--bootstrap-server=x:1"], ["-Beb", "x:1"], ["-X", "bootstrap.servers=x:1"]],
)
def test_brokers_of_an_option_are_not_shown_the_password_of_a_profile(tmp_path: Path, arguments: list[str]) -> None:
    assert defaults_of(environment(tmp_path), arguments).config == Setting()


def test_an_option_names_a_profile_for_one_command(tmp_path: Path) -> None:
    known = environment(tmp_path, **SERVERS, **CONFIG)
    kept = load(path_of_profiles(known))
    kept.by_name["test"] = Profile("b3:9092")
    save(path_of_profiles(known), kept)
    assert defaults_of(known, [], "test") == Defaults(Setting("b3:9092", "profile test"), Setting())
    assert defaults_of(known, [], "prod") == OF_PROFILE
    with pytest.raises(ProfileError, match="no profile is called 'prdo'; there are: prod, test"):
        defaults_of(known, [], "prdo")


@pytest.mark.parametrize("arguments", [["-b", "x:1"], ["--bootstrap-controller=c:1"], ["-X", "bootstrap.servers=x:1"]])
def test_one_command_is_not_given_two_clusters(tmp_path: Path, arguments: list[str]) -> None:
    with pytest.raises(ProfileError, match="name a cluster each: give one"):
        defaults_of(environment(tmp_path), arguments, "prod")


@pytest.mark.parametrize(
    ("given", "left", "name"),
    [
        (["topics", "list"], ["topics", "list"], None),
        (["topics", "--profile", "p", "list"], ["topics", "list"], "p"),
        (["produce", "t", "--profile=p"], ["produce", "t"], "p"),
        (["produce", "--", "--profile", "p"], ["produce", "--", "--profile", "p"], None),
    ],
)
def test_the_option_is_taken_from_the_arguments(given, left, name) -> None:
    assert profile_taken(given) == (left, name)


@pytest.mark.parametrize("given", [["--profile"], ["--profile="], ["--profile", "a", "--profile", "b"]])
def test_an_option_without_one_name_is_refused(given: list[str]) -> None:
    with pytest.raises(ProfileError, match="--profile"):
        profile_taken(given)


def test_flags_that_may_stand_before_b_are_known() -> None:
    flags = {
        flag[1]
        for command in command_tree().walk()
        if command.path and connects((*command.path, ""))
        for option in command.options
        for flag in option.flags
        if not option.metavar and len(flag) == 2 and flag != "-h"
    }
    assert [flag for flag in sorted(flags) if not SERVER_OPTION.fullmatch(f"-{flag}b")] == []


def test_a_cluster_of_this_directory_is_meant_by_its_commands(tmp_path: Path, home: Path, monkeypatch, capsys) -> None:
    """Else `cluster kill 2` would be about this one, and `cluster move` about that of the profile."""
    main(["profile", "add", "prod", "-b", "127.0.0.1:1", "--use"])
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert main(["cluster", "status"]) == 1
    assert capsys.readouterr().err == "kafkapy: Connection refused\n"
    (tmp_path / "kafkapy-cluster").mkdir()
    (tmp_path / "kafkapy-cluster" / "cluster.json").write_text("{}")
    assert main(["cluster", "status"]) == 1
    assert "kafkapy-cluster" in capsys.readouterr().err
    main(["profile", "add", "prod", "-b", "127.0.0.1:2", "--replace"])
    capsys.readouterr()
    assert main(["cluster", "check"]) == 1
    assert capsys.readouterr().err == "kafkapy: 127.0.0.1:2: Connection refused\n", "it knows no directory"


def test_profiles_of_another_user_are_none(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read all")
    path = tmp_path / "profiles.json"
    path.write_text("{}")
    path.chmod(0)
    assert load(path) == Profiles({})


def test_without_a_home_there_are_no_profiles_to_keep(monkeypatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("kafkapy.cli.profiles.expanduser", lambda path: path)
    path = path_of_profiles({})
    assert load(path) == Profiles({})
    with pytest.raises(ProfileError, match="set XDG_CONFIG_HOME"):
        save(path, Profiles({}))


def test_without_profiles_the_broker_of_this_machine_is_meant(tmp_path: Path) -> None:
    assert defaults_of({"XDG_CONFIG_HOME": str(tmp_path)}, []) == NO_DEFAULTS
    assert path_of_profiles({"HOME": "/h", "XDG_CONFIG_HOME": "not/absolute"}) == Path(
        "/h/.config/kafkapy/profiles.json"
    )


@pytest.mark.parametrize("text", ["", "[]", '{"profiles": {"a": 1}}', '{"profiles": {"a": {"bootstrap_servers": 1}}}'])
def test_a_damaged_file_is_named(home: Path, text: str, capsys) -> None:
    home.parent.mkdir()
    home.write_text(text)
    with pytest.raises(ProfileError, match="is damaged"):
        load(home)
    assert main(["topics", "list"]) == 1
    assert capsys.readouterr().err == f"kafkapy: {home} is damaged: delete it, or mend it\n"
    assert main(["topics", "list", "--data-dir", "x"]) == 2  # the option is the mistake


def test_profiles_are_added_used_shown_and_removed(home: Path, tmp_path: Path, capsys) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SSL\n")
    assert main(["profile", "add", "prod", "-b", "b1:9092", "--command-config", str(config)]) == 0
    assert main(["profile", "add", "here", "-b", "b2:9092", "--use"]) == 0
    assert main(["profile", "add", "here", "-b", "b3:9092"]) == 1
    assert main(["profile", "add", "here", "-b", "b3:9092", "--replace"]) == 0
    output = capsys.readouterr()
    assert "Added profile prod. `kafkapy profile use prod` has commands use it.\n" in output.out
    assert "there is a profile here: --replace replaces it" in output.err
    assert main(["profile", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["profile"], row["bootstrap_servers"], row["is_used"]) for row in rows] == [
        ("here", "b3:9092", True),
        ("prod", "b1:9092", False),
    ]
    assert rows[1]["command_config"] == str(config)
    assert main(["profile", "remove", "here"]) == 0
    assert load(home) == Profiles({"prod": Profile("b1:9092", str(config))})
    assert (stat.S_IMODE(home.stat().st_mode), stat.S_IMODE(home.parent.stat().st_mode)) == (0o600, 0o700)


def test_what_is_used_is_shown(home: Path, capsys, monkeypatch) -> None:
    main(["profile", "add", "prod", "-b", "b1:9092", "--use"])
    monkeypatch.setenv("KAFKAPY_COMMAND_CONFIG", "/etc/x")
    capsys.readouterr()
    assert main(["profile", "show"]) == 0
    assert capsys.readouterr().out == (
        "bootstrap servers: b1:9092\nbootstrap servers of: profile prod\n"
        "command config: /etc/x\ncommand config of: KAFKAPY_COMMAND_CONFIG\n"
    )
    assert main(["profile", "use", "--none"]) == 0
    assert main(["profile", "show", "prod", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["is_used"] is False


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["use", "prdo"], 1, "no profile is called 'prdo'; there are: none"),
        (["use"], 2, "NAME, or --none"),
        (["show", "prdo"], 1, "no profile is called 'prdo'"),
        (["remove", "prdo"], 1, "no profile is called 'prdo'"),
        (["add", "a/b", "-b", "b1:9092"], 2, "'a/b': letters, digits"),
        (["add", "a", "-b", "b1:9092", "--config", "/missing"], 1, "/missing cannot be read"),
    ],
)
def test_profiles_that_are_not_there_are_refused(home: Path, arguments, status, message, capsys) -> None:
    assert main(["profile", *arguments]) == status
    assert message in capsys.readouterr().err
    assert not home.exists()


def test_commands_use_the_profile_and_say_so_in_their_help(home: Path, capsys, monkeypatch) -> None:
    pytest.importorskip("confluent_kafka")
    with Broker() as broker:
        servers = broker.bootstrap_servers
        main(["profile", "add", "here", "-b", servers, "--use"])
        assert main(["topics", "create", "of-profile"]) == 0
        assert main(["cluster", "status"]) == 0
        assert "Created topic of-profile." in capsys.readouterr().out
        main(["profile", "add", "gone", "-b", "127.0.0.1:1", "--use"])
        assert main(["topics", "list", "--profile", "here"]) == 0
        assert "of-profile" in capsys.readouterr().out
        main(["profile", "use", "here"])
    assert main(["topics", "list", "--profile", "gone"]) == 1
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err
    monkeypatch.setenv("KAFKAPY_COMMAND_CONFIG", "/missing")
    assert main(["topics", "list", "-h"]) == 0
    shown = ANSI.sub("", capsys.readouterr().out)
    assert f"[default:({servers}ofprofilehere)]" in shown
    assert "[default:(/missingofKAFKAPY_COMMAND_CONFIG)]" in shown
    assert main(["topics", "list"]) == 1
    assert "/missing cannot be read: No such file or directory (KAFKAPY_COMMAND_CONFIG names it)" in (
        capsys.readouterr().err
    )
