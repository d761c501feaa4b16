"""The pytest plugin as its users meet it: in runs of pytest of their own, where a warning is a failure."""

import tomllib
from pathlib import Path

import pytest

from mqks.testing import broker

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
# By name and alone: so it is the same whether the entry point is installed here or not.
BY_NAME = ("--disable-plugin-autoload", "-p", "mqks.testing.plugin", "-p", "no:cacheprovider", "-W", "error")


@pytest.fixture
def users(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("MQKS_URL", raising=False)
    return pytester


def test_each_test_has_a_broker_of_its_own_and_its_address_in_the_environment(users: pytest.Pytester) -> None:
    users.makepyfile(
        """
        import os, socket
        import pytest

        seen = []

        @pytest.mark.parametrize("number", [1, 2])
        def test_with(mqks_broker, number):
            assert os.environ["MQKS_URL"] == mqks_broker.url
            with socket.create_connection((mqks_broker.host, mqks_broker.port)) as client:
                client.sendall(b"c1 consume --confirm q1\\ne1 _eval len(state.queues)\\n")
                with client.makefile() as answers:
                    assert [answers.readline(), answers.readline()] == ["c1 ok \\n", "e1 ok 1\\n"]
            assert mqks_broker not in seen
            seen.append(mqks_broker)

        def test_without():
            assert len(seen) == 2
            assert "MQKS_URL" not in os.environ
            for broker in seen:
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection((broker.host, broker.port))
        """
    )
    users.runpytest_subprocess(*BY_NAME).assert_outcomes(passed=3)


def test_the_tests_of_a_session_share_a_broker_and_the_environment_is_left_alone(
    users: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQKS_URL", "mqks://somewhere:1")
    code = """
        import os

        def test_it(mqks_broker_session, request):
            assert os.environ["MQKS_URL"] == "mqks://somewhere:1"
            assert mqks_broker_session is request.config.__dict__.setdefault("first", mqks_broker_session)

        def test_both(mqks_broker_session, mqks_broker):
            assert os.environ["MQKS_URL"] == mqks_broker.url != mqks_broker_session.url
        """
    users.makepyfile(test_1=code, test_2=code)
    users.runpytest_subprocess(*BY_NAME).assert_outcomes(passed=4)


def test_a_client_is_connected_and_comes_back(users: pytest.Pytester) -> None:
    users.makepyfile(
        """
        import mqks

        def test_it(mqks_client, mqks_broker):
            assert isinstance(mqks_client, mqks.Client)
            assert mqks_client.ping("x") == "x"
            mqks_broker.restart()
            assert mqks_client.ping("y") == "y"

        def test_code_finds_the_same_broker(mqks_client):
            with mqks.connect() as other:
                assert other.address == mqks_client.address
        """
    )
    users.runpytest_subprocess(*BY_NAME).assert_outcomes(passed=2)


def test_sevx_and_the_functions_follow_from_broker_to_broker(
    users: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have one connection per process, here to begin with one to a broker that is none of the tests'."""
    with broker() as elsewhere:
        monkeypatch.setenv("MQKS_URL", elsewhere.url)
        users.makepyfile(
            """
            import queue

            import pytest
            import sevx
            from mqks.client import functions

            functions.ping()
            sevx._ping()

            @pytest.mark.parametrize("number", [1, 2])
            def test_it(mqks_broker, mqks_client, number):
                seen = queue.Queue()
                sevx.on({"obj": "user"}, queue="seen", wait=True)(seen.put)
                functions.consume("q", ["e"], seen.put, confirm=True)
                assert set(mqks_client.stats()["queues"]) == {"seen", "q"}
                sevx.send({"obj": "user"})
                assert seen.get(timeout=10).content.obj == "user"
                functions.publish("e", "d", confirm=True)
                assert seen.get(timeout=10)["data"] == "d"
            """
        )
        users.runpytest_subprocess(*BY_NAME).assert_outcomes(passed=2)


def test_a_broker_that_failed_fails_the_test(users: pytest.Pytester) -> None:
    users.makepyfile(
        """
        def fail():
            raise RuntimeError("a fault in the broker")

        def test_it(mqks_broker):
            mqks_broker._running.loop.call_soon_threadsafe(fail)
        """
    )
    result = users.runpytest_subprocess(*BY_NAME)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["E*RuntimeError: a fault in the broker"])


def test_the_log_of_the_broker_is_shown_where_a_test_fails(users: pytest.Pytester) -> None:
    users.makepyfile(
        """
        import socket

        def test_it(mqks_broker):
            with socket.create_connection((mqks_broker.host, mqks_broker.port)) as client:
                client.sendall(b"x1 fly\\n")
                assert not client.recv(100)
        """
    )
    result = users.runpytest_subprocess(*BY_NAME)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Captured log call*", "WARNING*mqks.broker*reason=*unknown action*"])


def test_it_costs_nothing_where_no_broker_is_used(users: pytest.Pytester) -> None:
    users.makepyfile(
        """
        import sys, threading

        def test_it():
            assert "mqks.testing.plugin" in sys.modules
            assert "mqks.server" not in sys.modules
            assert threading.active_count() == 1
        """
    )
    users.runpytest_subprocess(*BY_NAME).assert_outcomes(passed=1)


def test_an_installed_mqks_is_found_by_itself_and_named_mqks(
    users: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the entry points that pyproject.toml declares, installed here or not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["entry-points"]["pytest11"]
    installed = users.mkdir("installed")
    meta = installed / "users_mqks-1.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: users-mqks\nVersion: 1\n")
    (meta / "entry_points.txt").write_text("[pytest11]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))
    monkeypatch.setenv("PYTHONPATH", str(installed))
    users.makepyfile("def test_it(mqks_broker): assert mqks_broker.port")
    users.runpytest_subprocess("-W", "error").assert_outcomes(passed=1)
    users.runpytest_subprocess("-W", "error", "-p", "mqks").assert_outcomes(passed=1)
    users.runpytest_subprocess("-W", "error", "-p", "no:mqks").assert_outcomes(errors=1)
