"""The ONNX graph of a policy: obs and history (or context) in, action and next history out, everything inside."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from sparc.deploy.contract import Contract
from sparc.errors import UserError

OPSET, IR_VERSION = 17, 8  # read by every onnxruntime since 1.12
BATCH = "batch"
CONTRACT_KEY = "sparc_contract"  # of the model's metadata

Arrays = dict[str, np.ndarray]


class Graph:
    """Collects nodes and constants."""

    def __init__(self) -> None:
        from onnx import helper, numpy_helper

        self._helper, self._numpy = helper, numpy_helper
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, name: str, value: Any) -> str:
        """Add a constant and return its name."""
        self.constants[name] = self._numpy.from_array(np.ascontiguousarray(value), name)
        return name

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        self.nodes.append(self._helper.make_node(op, inputs, [output], name=output, **attributes))
        return output


def build_model(contract: Contract, weights: Arrays) -> Any:
    """Return the policy as an ONNX model with the contract in its metadata."""
    try:
        from onnx import TensorProto, checker, helper
    except ImportError:
        raise UserError("ONNX needs the extra `deploy`: pip install 'sparc-rl[deploy]', or use --no-onnx.") from None

    obs_part, action_part = contract["inputs"]["obs"], contract["outputs"]["action"]
    history_part, context = contract["inputs"]["history"], contract["context"]
    graph = Graph()
    inputs = [("obs", [BATCH, obs_part["size"]])]
    outputs = [("action", [BATCH, action_part["size"]])]
    seen = normalise(graph, "obs", contract, weights)
    latent = None
    if history_part:
        shape = [BATCH, history_part["length"], history_part["width"]]
        inputs.append(("history", shape))
        outputs.append(("next_history", shape))
        latent = adapter(graph, contract, weights)
    elif context["read"]:
        inputs.append(("context", [BATCH, len(context["names"])]))
        latent = encode_context(graph, contract, weights)
    x = seen
    for index in range(2):
        x = dense(graph, x, f"trunk.observe.layers[{index}]", weights)
    x = graph.node("Concat", [x, latent], "joined", axis=1) if latent else x
    for index in range(2):
        x = dense(graph, x, f"trunk.decide.layers[{index}]", weights)
    size = action_part["size"]
    head = {name: weights[f"policy.trunk.head.{name}"][..., :size] for name in ("weight", "bias")}  # without the noise
    names = [graph.constant(f"trunk.head.{name}", array) for name, array in head.items()]
    unit = graph.node("Tanh", [graph.node("Gemm", [x, *names], "mean")], "unit_action")
    scale(graph, unit, action_part)
    if history_part:
        remember(graph, unit)
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "sparc-policy",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
            list(graph.constants.values()),
        ),
        producer_name="sparc-rl",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    helper.set_model_props(model, {CONTRACT_KEY: json.dumps(contract)})
    checker.check_model(model, full_check=True)
    return model


def normalise(graph: Graph, x: str, contract: Contract, weights: Arrays) -> str:
    """Standardise and clip observations on the last axis, where the policy does."""
    how = contract["inputs"]["obs"]["normalisation"]
    if how is None:
        return x
    mean = graph.constant("norm.mean", weights["policy.norm.mean"])
    variance = weights["policy.norm.variance"]
    std = graph.constant("norm.std", np.maximum(np.sqrt(variance), np.float32(how["min_std"])))
    bounds = [
        graph.constant(f"norm.{name}", np.float32(sign * how["clip"])) for name, sign in (("low", -1), ("high", 1))
    ]
    centred = graph.node("Sub", [x, mean], f"{x}_centred")
    divided = graph.node("Div", [centred, std], f"{x}_standardised")
    return graph.node("Clip", [divided, *bounds], f"{x}_seen")


def dense(graph: Graph, x: str, name: str, weights: Arrays) -> str:
    """Add an affine layer and a ReLU on (batch, in)."""
    parts = [graph.constant(f"{name}.{part}", weights[f"policy.{name}.{part}"]) for part in ("weight", "bias")]
    return graph.node("Relu", [graph.node("Gemm", [x, *parts], f"{name}.sum")], name)


def adapter(graph: Graph, contract: Contract, weights: Arrays) -> str:
    """Add φ(h): a layer per step, convolutions over time with edge padding, a layer on what they give."""
    size, steps = contract["inputs"]["obs"]["size"], contract["inputs"]["history"]["length"]
    rows = "history"
    if contract["inputs"]["obs"]["normalisation"]:
        rows = normalised_history(graph, size, contract, weights)
    weight, bias = (
        graph.constant(f"embed.{part}", weights[f"policy.encoder.embed.{part}"]) for part in ("weight", "bias")
    )
    product = graph.node("MatMul", [rows, weight], "embed.product")
    x = graph.node("Relu", [graph.node("Add", [product, bias], "embed.sum")], "embed")
    x = graph.node("Transpose", [x], "embed.channels_first", perm=[0, 2, 1])  # (batch, Z, H)
    channels = contract["network"]["latent"]
    for index, layer in enumerate(contract["network"]["convolutions"]):
        kernel, stride, name = layer["kernel"], layer["stride"], f"convolution{index}"
        windows = -(-steps // stride)
        padding = (windows - 1) * stride + kernel - steps
        left = padding // 2
        pads = graph.constant(f"{name}.pads", np.array([0, 0, left, 0, 0, padding - left], np.int64))
        flat = weights[f"policy.encoder.convolutions[{index}].weight"]  # (kernel · channels, filters)
        filters = flat.reshape(kernel, channels, -1).transpose(2, 1, 0)
        arrays = [
            graph.constant(f"{name}.weight", filters),
            graph.constant(f"{name}.bias", weights[f"policy.encoder.convolutions[{index}].bias"]),
        ]
        padded = graph.node("Pad", [x, pads], f"{name}.padded", mode="edge")
        x = graph.node("Conv", [padded, *arrays], f"{name}.sum", strides=[stride], kernel_shape=[kernel])
        x = graph.node("Relu", [x], name)
        channels, steps = layer["filters"], windows
    x = graph.node("Transpose", [x], "steps_first", perm=[0, 2, 1])
    return dense(graph, graph.node("Flatten", [x], "flat", axis=1), "encoder.out", weights)


def normalised_history(graph: Graph, size: int, contract: Contract, weights: Arrays) -> str:
    """Standardise the observations in the history; rows of zeros, before the episode, stay zeros."""
    zero, last = graph.constant("zero", np.float32(0.0)), graph.constant("last_axis", np.array([-1], np.int64))
    begin, split = graph.constant("begin", np.array([0], np.int64)), graph.constant("split", np.array([size], np.int64))
    end = graph.constant("end", np.array([contract["inputs"]["history"]["width"]], np.int64))
    largest = graph.node("ReduceMax", [graph.node("Abs", ["history"], "sizes")], "largest", axes=[-1], keepdims=1)
    there = graph.node("Greater", [largest, zero], "there")
    raw = graph.node("Slice", ["history", begin, split, last], "past_obs")
    kept = graph.node("Where", [there, normalise(graph, raw, contract, weights), zero], "past_seen")
    actions = graph.node("Slice", ["history", split, end, last], "past_actions")
    return graph.node("Concat", [kept, actions], "history_seen", axis=2)


def encode_context(graph: Graph, contract: Contract, weights: Arrays) -> str:
    """Add the scaled context, and ψ where the policy has one."""
    centre, half = (
        graph.constant(f"context.{name}", np.array(contract["context"][name], np.float32))
        for name in ("centre", "half_range")
    )
    x = graph.node("Div", [graph.node("Sub", ["context", centre], "context_centred"), half], "context_scaled")
    if contract["network"]["encoder"] == "context-encoder":
        for index in range(2):
            x = dense(graph, x, f"encoder.mlp.layers[{index}]", weights)
    return x


def scale(graph: Graph, unit: str, part: dict[str, Any]) -> None:
    """Stretch unit actions to the bounds and clip them, with Max and Min: the bounds of Clip must be scalars."""
    low, high = (np.array(part[name], part["dtype"]) for name in ("low", "high"))
    values = {"middle": (high + low) / 2, "half": (high - low) / 2, "low": low, "high": high}
    names = {name: graph.constant(f"action.{name}", value.astype(np.float32)) for name, value in values.items()}
    stretched = graph.node("Mul", [unit, names["half"]], "stretched")
    moved = graph.node("Add", [stretched, names["middle"]], "moved")
    graph.node("Min", [graph.node("Max", [moved, names["low"]], "raised"), names["high"]], "action")


def remember(graph: Graph, unit: str) -> None:
    """Drop the oldest row of the history and append (obs, unit action)."""
    step = graph.node("Concat", ["obs", unit], "step", axis=1)
    row = graph.node("Unsqueeze", [step, graph.constant("row_axis", np.array([1], np.int64))], "row")
    first, beyond = (
        graph.constant(name, np.array([value], np.int64)) for name, value in (("second_row", 1), ("beyond", 2**31))
    )
    rest = graph.node("Slice", ["history", first, beyond, "row_axis"], "rest")
    graph.node("Concat", [rest, row], "next_history", axis=1)
