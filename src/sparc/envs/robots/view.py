"""How a robot is pictured: without a screen, from the side, by a camera that goes with it."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparc.arrays import Array
from sparc.errors import UserError

# What MuJoCo can draw with where there is no screen, the better one first, and the library behind it.
OFF_SCREEN = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}
REMEDY = "install what is missing with `apt-get install libegl1 libgl1-mesa-dri`"

# RGB, dark to bright. Gymnasium's black and white floor outshines the robot, and a mirror in it takes time.
FLOOR = np.array([[150, 166, 182], [172, 187, 202]])
SKY = np.array([[190, 208, 226], [240, 246, 252]])
FOG, FOG_COLOUR = np.array([4.0, 14.0]), (205, 219, 232)  # m from the camera: far squares only flicker
SEEN = 0.68  # height of what a camera sees : its distance
HEADROOM = 0.5  # m: how far the torso may rise above the middle of the picture before the camera rises, too

_open: weakref.WeakSet[Any] = weakref.WeakSet()  # viewers


@dataclass(frozen=True)
class View:
    """Where the camera and a marker are, relative to the robot."""

    distance: float = 3.6  # m
    elevation: float = -8.0  # degrees
    middle: float = 1.15  # m above the floor
    arrow: float = 2.05  # m above the floor, the middle of the marker


def choose_backend() -> None:
    """Let MuJoCo draw without a screen, where there is none and nothing else was chosen."""
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if os.environ.get("MUJOCO_GL") or screen or sys.platform != "linux":
        return
    for backend, library in OFF_SCREEN.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        os.environ["MUJOCO_GL"] = backend
        return
    raise UserError(f"There is no screen, and neither EGL nor OSMesa to draw without one: {REMEDY}.")


def viewer_of(env: Any) -> Any:
    """Return the viewer of an environment on Gymnasium's MuJoCo; none of others, and none before the first picture."""
    return getattr(getattr(env.unwrapped, "mujoco_renderer", None), "viewer", None)


def make_current(env: Any) -> None:
    """Let OpenGL draw for this environment: Gymnasium's viewers draw with the context that was made last."""
    if (viewer := viewer_of(env)) is not None:
        viewer.make_context_current()


def release(env: Any) -> None:
    """Free what OpenGL holds for an environment: the garbage collector would free as much of another one's."""
    if (viewer := viewer_of(env)) is not None:
        viewer.make_context_current()
        viewer.con.free()
        _open.discard(viewer)


def _release_all() -> None:
    """Free what was never closed, as long as there is an OpenGL to do it."""
    for viewer in list(_open):
        viewer.make_context_current()
        viewer.con.free()
        viewer.free()


def soften_colours(model: Any) -> None:
    """Set quiet colours of floor and sky; the physics stays as it is."""
    import mujoco

    model.vis.map.fogstart, model.vis.map.fogend = FOG / model.stat.extent
    model.vis.rgba.fog[:3] = np.array(FOG_COLOUR) / 255
    floor = model.geom("floor").matid[0]
    model.mat_reflectance[floor], model.mat_rgba[floor], model.geom("floor").rgba[:] = 0.0, 1.0, 1.0
    colours = {int(model.mat_texid[floor][mujoco.mjtTextureRole.mjTEXROLE_RGB]): FLOOR}
    colours |= {int(sky): SKY for sky in np.flatnonzero(model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX)}
    for texture, (dark, bright) in colours.items():
        start, size = model.tex_adr[texture], model.tex_height[texture] * model.tex_width[texture]
        pixels = model.tex_data[start : start + 3 * size].reshape(size, 3)
        grey = pixels.mean(axis=1, keepdims=True)
        share = (grey - grey.min()) / max(float(np.ptp(grey)), 1.0)
        pixels[:] = (dark + share * (bright - dark)).round()


def focus(env: Any, view: View) -> Array:
    """Return the point that the camera looks at, (3,): the torso, at a height that changes only with high jumps."""
    x, y, z = env.data.body("torso").xpos
    return np.array([x, y, max(view.middle, z - HEADROOM)])


def scene(env: Any, view: View) -> dict[str, Any]:
    """Return what a page needs to draw a robot itself: its limbs as capsules, and where to look."""
    import mujoco

    model, data = env.model, env.data
    kinds = (mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_SPHERE)
    geoms = np.flatnonzero(np.isin(model.geom_type, kinds) & (model.geom_bodyid > 0))
    half = np.where(model.geom_type[geoms] == kinds[0], model.geom_size[geoms, 1], 0.0)
    reach = data.geom_xmat[geoms].reshape(-1, 3, 3)[:, :, 2] * half[:, None]
    middle = data.geom_xpos[geoms]
    legs = [leg_of(model, int(body)) for body in model.geom_bodyid[geoms]]
    capsules = np.column_stack([middle - reach, middle + reach, model.geom_size[geoms, 0], legs])
    return {
        "kind": "robot",
        "capsules": capsules.round(3).tolist(),  # each x, y, z of both ends, radius, leg
        "focus": focus(env, view).round(3).tolist(),
        "height": view.distance * SEEN,
        "tilt": 0.0 if planar(model) else -view.elevation,
    }


def planar(model: Any) -> bool:
    """Return whether a robot moves in the plane y = 0: its root is made of slides and hinges."""
    return int(model.jnt_type[0]) != 0  # mjJNT_FREE


def leg_of(model: Any, body: int) -> int:
    """Return which leg a body belongs to, from 1; the torso is 0."""
    torso = 1
    while body > torso and int(model.body_parentid[body]) != torso:
        body = int(model.body_parentid[body])
    legs = np.flatnonzero(model.body_parentid == torso)
    return int(np.searchsorted(legs, body)) + 1 if body > torso else 0


def picture(env: Any, view: View, marker: dict[str, Any] | None = None) -> Any:
    """Render a robot, and a marker if there is one."""
    import mujoco

    if viewer_of(env) is None:
        try:
            env.render()  # makes the viewer
        except Exception as error:  # whatever OpenGL, its Python package and MuJoCo each raise
            why = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"MuJoCo cannot draw here ({why}): {REMEDY}.") from error
        if not _open:
            atexit.register(_release_all)  # now: what is registered last comes first, and MuJoCo has just registered
        _open.add(viewer_of(env))
        camera = viewer_of(env).cam
        camera.azimuth, camera.elevation, camera.distance = 90.0, view.elevation, view.distance  # 90: x to the right
        flags = viewer_of(env).scn.flags
        flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False  # a marker's would lie on the robot
        flags[mujoco.mjtRndFlag.mjRND_FOG] = True
    viewer = viewer_of(env)
    viewer.cam.lookat[:] = focus(env, view)
    if marker is not None:
        viewer.add_marker(**marker)
    make_current(env)
    return env.render()
