# heavy_pendulum.py
import sparc


def apply(env, context):
    env.m, env.l = context


sparc.register_env(
    "HeavyPendulum-v0",
    make="Pendulum-v1",
    apply=apply,
    context_space=sparc.ContextSpace.box(m=("kg", (0.75, 1.25), (0.5, 1.5)), l=("m", (0.75, 1.25), (0.5, 1.5))),
)
