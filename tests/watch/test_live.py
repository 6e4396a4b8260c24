"""`sparc live` without a browser: the simulation thread, the server, and the command line."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import BRITTLE, serving
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

import sparc
from sparc.envs.registry import make_env
from sparc.errors import UserError
from sparc.watch.live.belief import Belief
from sparc.watch.live.server import Server
from sparc.watch.live.session import KEPT, Session
from sparc.watch.live.simulation import Simulation, open_contenders


def talk(server: Server) -> ClientConnection:
    return connect(server.address.replace("http", "ws") + "socket")


def receive(tab: ClientConnection, seen: bool = True) -> dict[str, Any]:
    message = json.loads(tab.recv(timeout=30))
    if "frame" in message and seen:
        tab.send(json.dumps("seen"))
    return dict(message)


def until(tab: ClientConnection, is_so: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Take frames until one is as wanted."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        message = receive(tab)
        if "frame" in message and is_so(message):
            return message
    raise AssertionError("no such frame")


def test_every_policy_has_the_regions_of_its_own_stages(tiny_run: Callable[..., Path], tmp_path: Path) -> None:
    parent = tiny_run("sparc")
    corner = {"x": (0.5, 1.0), "y": (0.5, 1.0)}
    child = sparc.continue_run(parent, corner, updates=10, run_dir=tmp_path / "child")
    with serving([parent, child]) as server, talk(server) as tab:
        first, second = receive(tab)["hello"]["policies"]
        inner, new = {"low": [-0.5, -0.5], "high": [0.5, 0.5]}, {"low": [0.5, 0.5], "high": [1.0, 1.0]}
        assert first["regions"] == [inner] and second["regions"] == [new, inner]
        assert len(first["map"]["boxes"]) == 1 and len(second["map"]["boxes"]) == 2
        for context, trained in (([0.0, 0.0], [True, True]), ([0.9, 0.9], [False, True]), ([0.9, -0.9], [False] * 2)):
            tab.send(json.dumps({"context": context}))
            message = until(tab, lambda message, context=context: message["frame"]["context"] == context)
            assert message["frame"]["ind"] == trained


def fetch(address: str, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers


def test_two_policies_begin_in_the_same_state_and_a_context_moves_both(tiny_run: Callable[..., Path]) -> None:
    with serving([tiny_run("sparc"), tiny_run("only-obs")]) as server, talk(server) as tab:
        hello = receive(tab)["hello"]
        assert [policy["title"] for policy in hello["policies"]] == ["SPARC", "Only Obs"]
        assert hello["policies"][0]["map"]["lines"] and hello["policies"][1]["map"] is None
        assert (hello["names"], hello["units"], hello["train"]["high"]) == (["x", "y"], ["m/s"] * 2, [0.5, 0.5])
        tab.send(json.dumps({"paused": True}))
        tab.send(json.dumps({"do": "reset"}))
        message = until(
            tab, lambda message: message["frame"]["paused"] and not message["frame"]["policies"][0]["steps"]
        )
        first, second = (policy["scene"]["boat"] for policy in message["frame"]["policies"])
        assert first == second
        tab.send(json.dumps({"context": [0.9, -5.0]}))  # clipped to what is tested
        tab.send(json.dumps({"paused": False}))
        message = until(tab, lambda message: any(sample["mark"] for sample in message["samples"]))
        assert message["frame"]["context"] == [0.9, -1.0] and not any(message["frame"]["ind"])
        assert [policy["scene"]["current"] for policy in message["frame"]["policies"]] == [[0.9, -1.0]] * 2
        sample = message["samples"][-1]["policies"]
        assert set(sample[0]) == {"reward", "phi", "psi", "estimate", "distance"} and set(sample[1]) == {"reward"}


def test_pushing_moves_all_boats_alike(tiny_run: Callable[..., Path]) -> None:
    with serving([tiny_run("sparc"), tiny_run("only-obs")]) as server, talk(server) as tab:
        until(tab, lambda message: True)
        tab.send(json.dumps({"paused": True}))
        before = until(tab, lambda message: message["frame"]["paused"])["frame"]["policies"]
        tab.send(json.dumps({"do": "push"}))
        after = until(tab, lambda message: message["frame"]["policies"][0]["scene"] != before[0]["scene"])["frame"]
        moves = [
            np.subtract(new["scene"]["boat"], old["scene"]["boat"])
            for new, old in zip(after["policies"], before, strict=True)
        ]
        assert np.allclose(*moves) and np.hypot(*moves[0]) == pytest.approx(4.0)


def test_nothing_is_simulated_while_nobody_watches(tiny_run: Callable[..., Path]) -> None:
    with serving([tiny_run("sparc")]) as server:
        with talk(server) as tab:
            until(tab, lambda message: message["samples"])
        time.sleep(0.5)
        frame = server.session.frame
        time.sleep(0.5)
        assert server.session.frame == frame
        with talk(server) as tab, talk(server) as other:  # a tab that is opened again, and a second one
            newest = until(tab, lambda message: message["samples"])["samples"][-1]["t"]
            assert newest > 0
            until(other, lambda message: any(sample["t"] > newest for sample in message["samples"]))


def test_a_slow_tab_is_sent_the_newest_frame_and_no_queue(tiny_run: Callable[..., Path]) -> None:
    with serving([tiny_run("sparc")]) as server, talk(server) as tab:
        assert "hello" in receive(tab)
        tab.send(json.dumps({"speed": 4.0}))
        frames = [receive(tab, seen=False) for _ in range(2)]
        with pytest.raises(TimeoutError):
            tab.recv(timeout=1.0)  # two are not seen yet
        last = max((sample["t"] for frame in frames for sample in frame["samples"]), default=0)
        tab.send(json.dumps("seen"))
        ticks = [sample["t"] for sample in receive(tab)["samples"]]
        assert (
            ticks == list(range(last + 1, last + 1 + len(ticks))) and len(ticks) > 10
        )  # none is missing in the traces
        assert len(server.session.samples) <= KEPT


@pytest.mark.parametrize(
    "nonsense",
    ["[]", "7", '{"context": [1]}', '{"context": [NaN, 0]}', '{"context": "x"}', '{"speed": 1e9}', '{"do": 1}'],
)
def test_nonsense_from_a_page_is_ignored(tiny_run: Callable[..., Path], nonsense: str) -> None:
    session = Session(open_contenders([tiny_run("sparc")]), 0, lambda: None)
    before = dict(vars(session))
    session.tell(json.loads(nonsense))
    assert {name: value for name, value in vars(session).items() if value is not before[name]} == {}


def test_an_environment_that_raises_is_reported_and_can_be_restarted(
    tiny_run: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    with serving([tiny_run("sparc", BRITTLE)]) as server, talk(server) as tab:
        message = until(tab, lambda message: message["samples"])
        assert "picture" in message["frame"]["policies"][0]  # it has no scene
        tab.send(json.dumps({"context": [0.9]}))
        error = until(tab, lambda message: message["frame"]["error"])["frame"]["error"]
        assert error.startswith("LiveCrash-v0 raised ValueError at step ") and " with load=0.9: too heavy" in error
        tab.send(json.dumps({"context": [0.1]}))
        tab.send(json.dumps({"do": "restart"}))
        message = until(tab, lambda message: message["frame"]["policies"] and message["samples"])
        assert not message["frame"]["error"] and message["frame"]["context"] == [0.1]
    assert capfd.readouterr().err.count("too heavy") == 1


def test_only_the_token_opens_the_page(tiny_run: Callable[..., Path]) -> None:
    with serving([tiny_run("sparc")]) as server:
        status, headers = fetch(server.address)
        assert status == 200 and headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
        assert server.address.startswith("http://127.0.0.1:")
        root = server.address.removesuffix(f"{server.token}/")
        for wrong in (root, f"{root}{'x' * len(server.token)}/", f"{root}{server.token[:-1]}/page.css"):
            assert fetch(wrong)[0] == 403
        assert fetch(f"{server.address}page.css")[0] == 200
        for missing in ("../session.py", "page.css/x", "nothing"):
            assert fetch(server.address + missing)[0] == 404
        assert fetch(server.address, Host="evil.example:80")[0] == 403
        for wrong in (f"{root}x/socket", f"{server.address}socket"):
            with pytest.raises(InvalidStatus):
                connect(wrong.replace("http", "ws"), origin="http://evil.example").close()


def test_the_nearest_psi_gives_the_context_back(tiny_run: Callable[..., Path]) -> None:
    simulation = Simulation(open_contenders([tiny_run("sparc")])[0])
    belief = simulation.belief
    assert isinstance(belief, Belief)
    simulation.close()
    for context in ([0.0, 0.0], [0.3, -0.2], [-0.9, 0.7]):
        assert belief.estimate(belief.truth(np.array(context))) == pytest.approx(context, abs=0.06)


def test_a_robot_tells_its_limbs_without_opengl() -> None:
    env = make_env("WindWalker2d-v5")
    env.reset(seed=0, options={"context": [3.0, -1.0]})
    scene = env.get_wrapper_attr("scene")()
    capsules = np.array(scene["capsules"])
    assert capsules.shape == (7, 8) and set(capsules[:, 7]) == {0, 1, 2}  # torso, right leg, left leg
    assert (scene["kind"], scene["tilt"], scene["wind"]) == ("robot", 0.0, [3.0, -1.0])
    thigh = env.unwrapped.model.geom("thigh_geom")
    assert np.linalg.norm(capsules[1, :3] - capsules[1, 3:6]) == pytest.approx(2 * thigh.size[1], abs=3e-3)
    before = env.unwrapped.data.qvel[0]
    env.get_wrapper_attr("push")(np.random.default_rng(0))
    assert abs(env.unwrapped.data.qvel[0] - before) == pytest.approx(3.0)
    env.close()


def test_runs_of_two_environments_are_refused(tiny_run: Callable[..., Path]) -> None:
    with pytest.raises(
        UserError, match=f"was trained in {BRITTLE}, not in DriftingBoat-v0: only policies of one environment"
    ):
        open_contenders([tiny_run("sparc"), tiny_run("sparc", BRITTLE)])


def test_the_command_serves_until_ctrl_c(
    tiny_run: Callable[..., Path], sparc_start: Callable[..., subprocess.Popen[str]], sparc_cli: Any
) -> None:
    process = sparc_start("live", tiny_run("sparc"), "--no-browser")
    assert process.stdout is not None
    address = process.stdout.readline().removeprefix("live: ").strip()
    assert fetch(address)[0] == 200
    port = address.split(":")[2].partition("/")[0]
    taken = sparc_cli("live", tiny_run("sparc"), "--no-browser", "--port", port)
    assert (taken.returncode, taken.stderr) == (
        2, f"sparc: port {port} is in use: choose another with --port, or leave it out.\n",
    )  # fmt: skip
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")


def test_without_the_package_one_line_names_the_remedy(tiny_run: Callable[..., Path], monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "websockets", None)
    with pytest.raises(UserError, match=r"pip install 'sparc-rl\[live\]'"):
        Server(open_contenders([tiny_run("sparc")]))


@pytest.mark.parametrize(("option", "value"), [("--port", "70000"), ("--port", "x"), ("--checkpoint", "first")])
def test_wrong_options_are_refused(tiny_run: Callable[..., Path], capsys: Any, option: str, value: str) -> None:
    from sparc.cli import main

    assert main(["live", str(tiny_run("sparc")), option, value]) == 2
    assert value in capsys.readouterr().err


def test_a_run_that_is_not_there_is_refused(capsys: Any, tmp_path: Path) -> None:
    from sparc.cli import main

    assert main(["live", str(tmp_path / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err
