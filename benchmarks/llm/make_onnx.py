#!/usr/bin/env python3
"""Writes Llama-3.2-1B with random 4-bit weights as the ONNX that onnxruntime-genai's builder makes of the real one:
MatMulNBits in blocks of 32, packed QKV, GroupQueryAttention with rotary embedding, external data.

    python3 make_onnx.py OUT --precision f16|f32 [--small]

Needs numpy and onnx. OUT gets geometry.json (for runtimes/onnxruntime.js), and what transformers.js looks for:
config.json, generation_config.json, onnx/model_q4f16.onnx or onnx/model_q4.onnx with its data.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

BLOCK = 32
MICROSOFT = "com.microsoft"


@dataclass
class Geometry:
    layers: int = 16
    hidden: int = 2048
    feed_forward: int = 8192
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 64
    vocabulary: int = 128256
    positions: int = 16384


SMALL = Geometry(2, 256, 512, 4, 2, 64, 1024, 1024)


class Writer:
    """A graph under construction; large initializers go to the data file as they are made."""

    def __init__(self, geometry: Geometry, precision: str, data: Path):
        self.g = geometry
        self.element = TensorProto.FLOAT16 if precision == "f16" else TensorProto.FLOAT
        self.numpy = np.float16 if precision == "f16" else np.float32
        self.random = np.random.default_rng(0)
        self.file, self.location = data.open("wb"), data.name
        self.nodes, self.initializers, self.inputs, self.outputs = [], [], [], []

    def external(self, name: str, values: np.ndarray, kind: int) -> str:
        self.file.write(bytes(-self.file.tell() % 4096))
        tensor = TensorProto(name=name, data_type=kind, dims=values.shape, data_location=TensorProto.EXTERNAL)
        place = {"location": self.location, "offset": self.file.tell(), "length": values.nbytes}
        for key, value in place.items():
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
        self.file.write(values.tobytes())
        self.initializers.append(tensor)
        return name

    def constant(self, name: str, values) -> str:
        self.initializers.append(onnx.numpy_helper.from_array(np.asarray(values, np.int64), name))
        return name

    def node(self, op: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes) -> str:
        name = f"n{len(self.nodes)}_{op}"
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def norm_weight(self, name: str) -> str:
        return self.external(name, np.ones(self.g.hidden, self.numpy), self.element)

    def linear(self, x: str, name: str, k: int, n: int) -> str:
        words = self.random.integers(0, 256, (n, k // BLOCK, BLOCK // 2), dtype=np.uint8)
        # the standard deviation of a weight is about 1 / sqrt(k); signs, since 0 … 15 less 8 is -0.5 on average
        scale = (0.5 + self.random.random((n, k // BLOCK), np.float32)) / (4.61 * k**0.5)
        scale *= self.random.choice(np.array([-1, 1], np.float32), scale.shape)
        inputs = [
            x,
            self.external(f"{name}.q", words, TensorProto.UINT8),
            self.external(f"{name}.s", scale.astype(self.numpy), self.element),
        ]
        sizes = {"K": k, "N": n, "bits": 4, "block_size": BLOCK, "accuracy_level": 4}
        return self.node("MatMulNBits", inputs, [f"{name}.out"], MICROSOFT, **sizes)

    def lengths(self) -> None:
        """seqlens_k and total of the mask, as GroupQueryAttention wants them."""
        self.constant("one", [1])
        self.constant("one_scalar", 1)
        self.node("ReduceSum", ["attention_mask", "one"], ["seen"], keepdims=0)
        self.node("Sub", ["seen", "one"], ["last"])
        self.node("Cast", ["last"], ["seqlens_k"], to=TensorProto.INT32)
        self.node("Shape", ["attention_mask"], ["mask_shape"])
        self.node("Gather", ["mask_shape", "one_scalar"], ["total_64"], axis=0)
        self.node("Cast", ["total_64"], ["total"], to=TensorProto.INT32)

    def rotary(self) -> None:
        steps = np.arange(0, self.g.head_dim, 2) / self.g.head_dim
        angles = np.arange(self.g.positions)[:, None] * 500000.0**-steps
        for name, values in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
            self.external(name, values.astype(self.numpy), self.element)

    def attention(self, qkv: str, i: int) -> str:
        cache = ["batch_size", self.g.kv_heads, "past_sequence_length", self.g.head_dim]
        present = [cache[0], cache[1], "present_sequence_length", cache[3]]
        names = [(f"past_key_values.{i}.{part}", f"present.{i}.{part}") for part in ("key", "value")]
        for past, now in names:
            self.inputs.append(helper.make_tensor_value_info(past, self.element, cache))
            self.outputs.append(helper.make_tensor_value_info(now, self.element, present))
        inputs = [qkv, "", "", names[0][0], names[1][0], "seqlens_k", "total", "cos", "sin"]
        outputs = [f"l{i}.attention", names[0][1], names[1][1]]
        attributes = {
            "num_heads": self.g.heads,
            "kv_num_heads": self.g.kv_heads,
            "do_rotary": 1,
            "rotary_interleaved": 0,
            "scale": self.g.head_dim**-0.5,
            "local_window_size": -1,
            "softcap": 0.0,
        }
        return self.node("GroupQueryAttention", inputs, outputs, MICROSOFT, **attributes)

    def add_norm(self, x: str, y: str, name: str, last: bool = False) -> tuple[str, str]:
        """The norm of x + y, and x + y."""
        outputs = [f"{name}.norm"] + ([] if last else ["", "", f"{name}.sum"])
        inputs = [x, y, self.norm_weight(f"{name}.weight")]
        self.node("SkipSimplifiedLayerNormalization", inputs, outputs, MICROSOFT, epsilon=1e-5)
        return f"{name}.norm", f"{name}.sum"

    def layer(self, y: str, residual: str, i: int) -> tuple[str, str]:
        g, p = self.g, f"l{i}"
        qkv = self.linear(y, f"{p}.qkv", g.hidden, (g.heads + 2 * g.kv_heads) * g.head_dim)
        out = self.linear(self.attention(qkv, i), f"{p}.o", g.heads * g.head_dim, g.hidden)
        y, residual = self.add_norm(residual, out, f"{p}.post")
        gate = self.linear(y, f"{p}.gate", g.hidden, g.feed_forward)
        up = self.linear(y, f"{p}.up", g.hidden, g.feed_forward)
        sigmoid = self.node("Sigmoid", [gate], [f"{p}.sigmoid"])
        silu = self.node("Mul", [gate, sigmoid], [f"{p}.silu"])
        product = self.node("Mul", [silu, up], [f"{p}.product"])
        down = self.linear(product, f"{p}.down", g.feed_forward, g.hidden)
        return self.add_norm(residual, down, f"{p}.next", last=i == g.layers - 1)

    def model(self) -> onnx.ModelProto:
        g = self.g
        for name, dims in (
            ("input_ids", ["batch_size", "sequence_length"]),
            ("attention_mask", ["batch_size", "total_sequence_length"]),
        ):
            self.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, dims))
        self.lengths()
        self.rotary()
        rows = (self.random.standard_normal((g.vocabulary, g.hidden), np.float32) * 0.02).astype(self.numpy)
        x = self.node("Gather", [self.external("embedding", rows, self.element), "input_ids"], ["embedded"], axis=0)
        weight = self.norm_weight("first.weight")
        y = self.node("SimplifiedLayerNormalization", [x, weight], ["first"], axis=-1, epsilon=1e-5, stash_type=1)
        for i in range(g.layers):
            y, x = self.layer(y, x, i)
        # of the last token only
        self.constant("minus_one", [-1])
        self.constant("end", [2**62])
        y = self.node("Slice", [y, "minus_one", "end", "one"], ["last_row"])
        logits = self.linear(y, "head", g.hidden, g.vocabulary)
        self.node("Cast", [logits], ["logits"], to=TensorProto.FLOAT)
        info = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch_size", 1, g.vocabulary])
        graph = helper.make_graph(self.nodes, "llama", self.inputs, [info, *self.outputs], self.initializers)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
        self.file.close()
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def transformers_config(g: Geometry) -> dict:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": g.hidden,
        "num_hidden_layers": g.layers,
        "num_attention_heads": g.heads,
        "num_key_value_heads": g.kv_heads,
        "head_dim": g.head_dim,
        "intermediate_size": g.feed_forward,
        "vocab_size": g.vocabulary,
        "max_position_embeddings": g.positions,
        "transformers.js_config": {"use_external_data_format": True, "kv_cache_dtype": {"q4f16": "float16"}},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--precision", choices=("f16", "f32"), default="f16")
    parser.add_argument("--small", action="store_true", help="two narrow layers, for tests")
    arguments = parser.parse_args()
    geometry = SMALL if arguments.small else Geometry()
    folder = arguments.out / "onnx"
    folder.mkdir(parents=True, exist_ok=True)
    name = "model_q4f16.onnx" if arguments.precision == "f16" else "model_q4.onnx"
    model = Writer(geometry, arguments.precision, folder / f"{name}_data").model()
    (folder / name).write_bytes(model.SerializeToString())
    facts = {**asdict(geometry), "precision": arguments.precision, "file": f"onnx/{name}"}
    (arguments.out / "geometry.json").write_text(json.dumps(facts))
    (arguments.out / "config.json").write_text(json.dumps(transformers_config(geometry)))
    (arguments.out / "generation_config.json").write_text(json.dumps({"max_length": geometry.positions}))


if __name__ == "__main__":
    main()
