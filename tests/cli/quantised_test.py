#!/usr/bin/env python3
"""Checkpoints that somebody quantised: `doppler convert` must give the values that their formats say, bit for bit, and
`doppler run` the tokens of the same weights stored plainly.

    tests/cli/quantised_test.py build/doppler [TEST ...]

Checkpoints are random codes packed as the formats pack them; what they stand for is computed here, code by code, from
the formats' descriptions (docs/formats.md)."""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = sys.argv.pop(1)
HIDDEN, FFN, VOCAB, HEADS, SHARED = 64, 96, 48, 2, 1
PATIENCE = 300  # seconds, on a machine that has other things to do

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FFN,
    "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": SHARED, "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 10000.0, "tie_word_embeddings": False,
}  # fmt: skip
ATTENTION, MLP = "model.layers.0.self_attn.", "model.layers.0.mlp."
MATRICES = {
    ATTENTION + "q_proj": (HIDDEN, HIDDEN), ATTENTION + "k_proj": (32, HIDDEN), ATTENTION + "v_proj": (32, HIDDEN),
    ATTENTION + "o_proj": (HIDDEN, HIDDEN), MLP + "gate_proj": (FFN, HIDDEN), MLP + "up_proj": (FFN, HIDDEN),
    MLP + "down_proj": (HIDDEN, FFN),
}  # fmt: skip
PLAIN = {
    "model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN),
    "model.layers.0.input_layernorm.weight": (HIDDEN,), "model.layers.0.post_attention_layernorm.weight": (HIDDEN,),
}  # fmt: skip


# ---- numbers

def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def f16(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def bf16_bits(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def bf16(x):
    return struct.unpack("<f", struct.pack("<I", bf16_bits(x) << 16))[0]


def small_float(code, exponent_bits, mantissa_bits):
    """Sign, exponent and mantissa of any width; the bias is half the exponent's range, no infinities."""
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
    exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    bias = (1 << (exponent_bits - 1)) - 1
    return sign * (2.0 ** (1 - bias) * mantissa if exponent == 0 else 2.0 ** (exponent - bias) * (1 + mantissa))


def e4m3(code):
    return small_float(code, 4, 3)


def e5m2(code):
    return small_float(code, 5, 2)


def e2m1(code):
    return small_float(code, 2, 1)


# ---- safetensors and RDRR

PACKED = {"F32": "f", "F16": "e", "I32": "I", "I64": "q", "I8": "b", "U8": "B", "F8_E4M3": "B", "F8_E5M2": "B"}


class Tensor:
    def __init__(self, dtype, shape, values):
        self.dtype, self.shape = dtype, list(shape)
        if isinstance(values, bytes):
            self.data = values
        elif dtype == "BF16":
            self.data = struct.pack(f"<{len(values)}H", *map(bf16_bits, values))
        else:
            self.data = struct.pack(f"<{len(values)}{PACKED[dtype]}", *values)


def write_checkpoint(folder, config, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    header, end = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [end, end + len(tensor.data)]}
        end += len(tensor.data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    blob = struct.pack("<Q", len(text)) + text + b"".join(t.data for t in tensors.values())
    (folder / "model.safetensors").write_bytes(blob)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def read_artefact(folder, key="slot"):
    """The bytes of every slot, or of every tensor by name, of an artefact with one shard."""
    manifest = json.loads((folder / "manifest.json").read_text())
    shard = (folder / "shard_00000.bin").read_bytes()
    return {t["slot"] if key == "slot" else name: shard[t["offset"]: t["offset"] + t["size"]]
            for name, t in manifest["tensors"].items()}


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


# ---- formats: each makes the stored tensors of a module [rows, cols] and the values that they stand for

def codes_of(rng, count, bits):
    return [rng.randrange(1 << bits) for _ in range(count)]


def fp8_codes(rng, count, nan=(0x7F, 0xFF)):
    return rng.choices([code for code in range(256) if code not in nan], k=count)


def scale_of(rng, size):
    return f32(rng.uniform(0.5, 1.5) * size)


def fp8(rng, module, rows, cols, block=None, dtype="F32", ending="_scale_inv", shape=None, kind="F8_E4M3"):
    """Scales for blocks of block[0] rows and block[1] columns; `shape` says the scales' otherwise."""
    high, wide = block or (rows, cols)
    grid = [-(-rows // high), -(-cols // wide)]
    decode = e4m3
    codes = fp8_codes(rng, rows * cols)
    if kind == "F8_E5M2":
        decode = e5m2
        codes = fp8_codes(rng, rows * cols, [c for c in range(256) if c & 0x7C == 0x7C])
    scales = [scale_of(rng, 1e-3 if kind == "F8_E4M3" else 1e-5) for _ in range(grid[0] * grid[1])]
    if dtype == "BF16":
        scales = [bf16(s) for s in scales]
    values = [f32(decode(codes[r * cols + c]) * scales[r // high * grid[1] + c // wide])
              for r in range(rows) for c in range(cols)]
    return {f"{module}.weight": Tensor(kind, [rows, cols], codes),
            f"{module}.weight{ending}": Tensor(dtype, grid if shape is None else shape, scales)}, values


def fp8_tensor(rng, module, rows, cols):
    tensors, values = fp8(rng, module, rows, cols, dtype="BF16", shape=[])
    return {**tensors, f"{module}.activation_scale": Tensor("BF16", [], [0.25])}, values


def fp8_channel(rng, module, rows, cols):
    return fp8(rng, module, rows, cols, (1, cols), "BF16", "_scale")


def fp8_block(rng, module, rows, cols):
    return fp8(rng, module, rows, cols, (40, 24))


def fp8_e5m2(rng, module, rows, cols):
    return fp8(rng, module, rows, cols, (1, cols), "F32", "_scale", [rows], "F8_E5M2")


def mxfp8(rng, module, rows, cols):
    codes = fp8_codes(rng, rows * cols)
    scales = [rng.randrange(115, 119) for _ in range(rows * cols // 32)]
    values = [e4m3(code) * 2.0 ** (scales[i // 32] - 127) for i, code in enumerate(codes)]
    return {f"{module}.weight": Tensor("F8_E4M3", [rows, cols], codes),
            f"{module}.weight_scale": Tensor("U8", [rows, cols // 32], scales)}, values


def int8_channel(rng, module, rows, cols):
    codes = [rng.randrange(-128, 128) for _ in range(rows * cols)]
    scales = [scale_of(rng, 2e-3) for _ in range(rows)]
    zeros = [rng.randrange(-20, 20) for _ in range(rows)]
    values = [f32((codes[r * cols + c] - zeros[r]) * scales[r]) for r in range(rows) for c in range(cols)]
    return {f"{module}.weight": Tensor("I8", [rows, cols], codes),
            f"{module}.weight_scale": Tensor("F32", [rows, 1], scales),
            f"{module}.weight_zero_point": Tensor("I8", [rows, 1], zeros)}, values


def pairs(codes):
    return [low | high << 4 for low, high in zip(codes[::2], codes[1::2])]


def nvfp4(rng, module, rows, cols, divides):
    codes = codes_of(rng, rows * cols, 4)
    scales = fp8_codes(rng, rows * cols // 16, [c for c in range(256) if c >= 0x7F])  # none is negative
    factor = f32(3000.0 * rng.uniform(0.5, 1.5)) if divides else f32(rng.uniform(0.5, 1.5) / 3000)
    steps = [f32(e4m3(s) / factor) if divides else f32(e4m3(s) * factor) for s in scales]
    values = [f32(e2m1(code) * steps[i // 16]) for i, code in enumerate(codes)]
    scale = Tensor("F8_E4M3", [rows, cols // 16], scales)
    packed = Tensor("U8", [rows, cols // 2], pairs(codes))
    if divides:
        return {f"{module}.weight_packed": packed, f"{module}.weight_scale": scale,
                f"{module}.weight_global_scale": Tensor("F32", [1], [factor]),
                f"{module}.input_global_scale": Tensor("F32", [1], [1.0])}, values
    return {f"{module}.weight": packed, f"{module}.weight_scale": scale,
            f"{module}.weight_scale_2": Tensor("F32", [], [factor]),
            f"{module}.input_scale": Tensor("F32", [], [1.0])}, values


def mxfp4(rng, module, rows, cols):
    codes = codes_of(rng, rows * cols, 4)
    scales = [rng.randrange(121, 126) for _ in range(rows * cols // 32)]
    values = [e2m1(code) * 2.0 ** (scales[i // 32] - 127) for i, code in enumerate(codes)]
    return {f"{module}.weight_packed": Tensor("U8", [rows, cols // 2], pairs(codes)),
            f"{module}.weight_scale": Tensor("U8", [rows, cols // 32], scales)}, values


def words(codes, bits):
    """A stream of bits from the lowest up, as words of 32."""
    stream = 0
    for i, code in enumerate(codes):
        stream |= code << (i * bits)
    return [stream >> (32 * w) & 0xFFFFFFFF for w in range(-(-len(codes) * bits // 32))]


def pack_quantized(rng, module, rows, cols, bits, group, zero_points, by_index=False):
    count = -(-cols // group)
    codes = codes_of(rng, rows * cols, bits)
    scales = [bf16(scale_of(rng, 0.2 / (1 << bits))) for _ in range(rows * count)]
    zeros = codes_of(rng, rows * count, bits) if zero_points else [1 << (bits - 1)] * (rows * count)
    index = [c // group for c in range(cols)]
    if by_index:
        rng.shuffle(index)
    values = [f32((codes[r * cols + c] - zeros[r * count + index[c]]) * scales[r * count + index[c]])
              for r in range(rows) for c in range(cols)]
    lines = [words(codes[r * cols: (r + 1) * cols], bits) for r in range(rows)]
    tensors = {f"{module}.weight_packed": Tensor("I32", [rows, len(lines[0])], sum(lines, [])),
               f"{module}.weight_scale": Tensor("BF16", [rows, count], scales),
               f"{module}.weight_shape": Tensor("I64", [2], [rows, cols])}
    if zero_points:
        columns = [words(zeros[g::count], bits) for g in range(count)]
        tensors[f"{module}.weight_zero_point"] = Tensor(
            "I32", [len(columns[0]), count], [columns[g][w] for w in range(len(columns[0])) for g in range(count)])
    if by_index:
        tensors[f"{module}.weight_g_idx"] = Tensor("I32", [cols], index)
    return tensors, values


def column_values(codes, scales, zeros, index, rows, cols):
    return [f32((codes[c][r] - zeros[index[c]][r]) * scales[index[c]][r]) for r in range(rows) for c in range(cols)]


def gptq(rng, module, rows, cols, bits, group, less_one, by_index=False, symmetric=False):
    count = -(-cols // group)
    codes = [codes_of(rng, rows, bits) for _ in range(cols)]  # [column][row]
    scales = [[f16(scale_of(rng, 0.2 / (1 << bits))) for _ in range(rows)] for _ in range(count)]
    zeros = [[1 << (bits - 1)] * rows if symmetric else codes_of(rng, rows, bits) for _ in range(count)]
    index = [c // group for c in range(cols)]
    if by_index:
        rng.shuffle(index)
    stored = []
    for line in zeros:
        # The first format keeps zero points less one, subtracted from whole words: one of zero borrows from the next.
        ones = sum(1 << i for i in range(0, 32, bits)) if less_one else 0
        stored.append([(word - ones) & 0xFFFFFFFF for word in words(line, bits)])
    streams = [words([codes[c][r] for c in range(cols)], bits) for r in range(rows)]
    qweight = [streams[r][w] for w in range(len(streams[0])) for r in range(rows)]
    tensors = {f"{module}.qweight": Tensor("I32", [len(streams[0]), rows], qweight),
               f"{module}.qzeros": Tensor("I32", [count, len(stored[0])], sum(stored, [])),
               f"{module}.scales": Tensor("F16", [count, rows], sum(scales, []))}
    if by_index or rng.random() < 0.5:
        tensors[f"{module}.g_idx"] = Tensor("I32", [cols], index)
    return tensors, column_values(codes, scales, zeros, index, rows, cols)


def awq(rng, module, rows, cols, group=32):
    order = [0, 2, 4, 6, 1, 3, 5, 7]  # which of eight columns lies in nibble 0, 1, …
    count = cols // group
    codes = [codes_of(rng, rows, 4) for _ in range(cols)]
    zeros = [codes_of(rng, rows, 4) for _ in range(count)]
    scales = [[f16(scale_of(rng, 0.02)) for _ in range(rows)] for _ in range(count)]

    def pack(lines):
        return [sum(line[first + column] << (4 * nibble) for nibble, column in enumerate(order))
                for line in lines for first in range(0, rows, 8)]

    index = [c // group for c in range(cols)]
    return {f"{module}.qweight": Tensor("I32", [cols, rows // 8], pack(codes)),
            f"{module}.qzeros": Tensor("I32", [count, rows // 8], pack(zeros)),
            f"{module}.scales": Tensor("F16", [count, rows], sum(scales, []))}, column_values(
                codes, scales, zeros, index, rows, cols)


def nf4(rng, module, rows, cols, nested, block=64, kind="nf4"):
    table = [f32(-1 + 2 * i / 15 + rng.uniform(-0.02, 0.02)) for i in range(16)]
    codes = codes_of(rng, rows * cols, 4)
    count = -(-rows * cols // block)
    state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": [rows, cols]}
    name = f"{module}.weight"
    tensors = {name: Tensor("U8", [len(codes) // 2, 1], [a << 4 | b for a, b in zip(codes[::2], codes[1::2])]),
               f"{name}.quant_map": Tensor("F32", [16], table)}
    if nested:
        inner = [f32(-1 + 2 * i / 255) for i in range(256)]
        bytes_, wide = codes_of(rng, count, 8), 16
        largest = [scale_of(rng, 0.05) for _ in range(-(-count // wide))]
        offset = f32(0.1)
        state |= {"nested_blocksize": wide, "nested_dtype": "float32", "nested_offset": offset}
        scales = [f32(f32(inner[b] * largest[i // wide]) + offset) for i, b in enumerate(bytes_)]
        tensors |= {f"{name}.absmax": Tensor("U8", [count], bytes_),
                    f"{name}.nested_absmax": Tensor("F32", [len(largest)], largest),
                    f"{name}.nested_quant_map": Tensor("F32", [256], inner)}
    else:
        scales = [scale_of(rng, 0.1) for _ in range(count)]
        tensors[f"{name}.absmax"] = Tensor("F32", [count], scales)
    text = json.dumps(state).encode()
    tensors[f"{name}.quant_state.bitsandbytes__{kind}"] = Tensor("U8", [len(text)], text)
    return tensors, [f32(table[code] * scales[i // block]) for i, code in enumerate(codes)]


def llm_int8(rng, module, rows, cols):
    codes = [rng.randrange(-127, 128) for _ in range(rows * cols)]
    largest = [scale_of(rng, 0.3) for _ in range(rows)]
    values = [f32(f32(codes[r * cols + c] * largest[r]) * f32(1 / 127)) for r in range(rows) for c in range(cols)]
    return {f"{module}.weight": Tensor("I8", [rows, cols], codes), f"{module}.SCB": Tensor("F32", [rows], largest),
            f"{module}.weight_format": Tensor("U8", [], [0])}, values


def groups(**weights):
    return {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


COMPRESSED = {"quant_method": "compressed-tensors", "ignore": ["lm_head"]}
GPTQ = {"quant_method": "gptq", "group_size": 32, "checkpoint_format": "gptq"}
FORMATS = {
    "fp8 in blocks": (fp8_block, {"quant_method": "fp8", "weight_block_size": [40, 24]}),
    "fp8 with one scale": (fp8_tensor, {"quant_method": "fp8", "weight_block_size": None}),
    "fp8 by channel": (fp8_channel, {**COMPRESSED, "format": "float-quantized"}),
    "fp8 e5m2": (fp8_e5m2, {"quant_method": "fbgemm_fp8"}),
    "fp8 of modelopt": (
        lambda *a: fp8(*a, ending="_scale", shape=[]), {"quant_method": "modelopt", "quant_algo": "FP8"}),
    "fp8 in blocks of compressed-tensors": (
        lambda *a: fp8(*a, (32, 32), "BF16", "_scale"),
        {**COMPRESSED, "format": "float-quantized", **groups(strategy="block", block_structure=[32, 32])}),
    "mxfp8 of modelopt": (mxfp8, {"quant_method": "modelopt", "quant_algo": "MXFP8"}),
    "int8": (int8_channel, {**COMPRESSED, "format": "int-quantized"}),
    "int4 packed": (
        lambda *a: pack_quantized(*a, 4, 32, False),
        {**COMPRESSED, "format": "pack-quantized", **groups(num_bits=4, group_size=32)}),
    "int4 packed with zero points": (
        lambda *a: pack_quantized(*a, 4, 32, True),
        {**COMPRESSED, "format": "pack-quantized", **groups(num_bits=4, group_size=32)}),
    "int8 packed by index": (
        lambda *a: pack_quantized(*a, 8, 16, True, True),
        {**COMPRESSED, "format": "pack-quantized", **groups(num_bits=8, group_size=16, actorder="group")}),
    "nvfp4 of modelopt": (lambda *a: nvfp4(*a, False), {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
    "nvfp4 of compressed-tensors": (lambda *a: nvfp4(*a, True), {**COMPRESSED, "format": "nvfp4-pack-quantized"}),
    "mxfp4 of compressed-tensors": (mxfp4, {**COMPRESSED, "format": "mxfp4-pack-quantized"}),
    "gptq": (lambda *a: gptq(*a, 4, 32, True), {**GPTQ, "bits": 4}),
    "gptq with an index": (lambda *a: gptq(*a, 4, 32, True, True), {**GPTQ, "bits": 4, "desc_act": True}),
    "gptq v2": (lambda *a: gptq(*a, 4, 32, False), {**GPTQ, "bits": 4, "checkpoint_format": "gptq_v2"}),
    "gptq of 8 bits": (lambda *a: gptq(*a, 8, 32, True), {**GPTQ, "bits": 8}),
    "gptq of 3 bits": (lambda *a: gptq(*a, 3, 32, True, symmetric=True), {**GPTQ, "bits": 3, "sym": True}),
    "gptq v2 of 3 bits": (lambda *a: gptq(*a, 3, 32, False), {**GPTQ, "bits": 3, "checkpoint_format": "gptq_v2"}),
    "gptq of 2 bits": (lambda *a: gptq(*a, 2, 32, True), {**GPTQ, "bits": 2}),
    "gptq of autoround": (lambda *a: gptq(*a, 4, 32, True),
                          {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "group_size": 32}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}),
    "nf4": (lambda *a: nf4(*a, False), {"quant_method": "bitsandbytes", "bnb_4bit_quant_type": "nf4"}),
    "nf4 nested": (lambda *a: nf4(*a, True), {"quant_method": "bitsandbytes", "bnb_4bit_quant_type": "nf4"}),
    "fp4 in blocks across rows": (lambda *a: nf4(*a, False, 128, "fp4"), {"quant_method": "bitsandbytes"}),
    "llm.int8": (llm_int8, {"quant_method": "bitsandbytes", "load_in_8bit": True}),
}  # fmt: skip


def plain(rng, shapes):
    out = {}
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        out[name] = [bf16(rng.uniform(-1, 1) if len(shape) == 2 else rng.uniform(0.5, 1.5)) for _ in range(count)]
    return out


def make(name, matrices=None, shapes=None):
    """The checkpoint's tensors, and what each of the model's tensors stands for."""
    build = FORMATS[name][0]
    rng = random.Random(name)
    tensors, values = {}, {}
    for key, numbers in plain(rng, shapes or PLAIN).items():
        tensors[key] = Tensor("BF16", (shapes or PLAIN)[key], numbers)
        values[key] = numbers
    for module, (rows, cols) in (matrices or MATRICES).items():
        stored, numbers = build(rng, module, rows, cols)
        tensors |= stored
        values[module + ".weight"] = numbers
    return tensors, values


def config_of(name, base=None):
    return {**(base or CONFIG), "quantization_config": FORMATS[name][1]}


class Quantised(unittest.TestCase):
    def setUp(self):
        room = tempfile.TemporaryDirectory()
        self.addCleanup(room.cleanup)
        self.room = pathlib.Path(room.name)

    def program(self, *arguments):
        return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)

    def convert(self, source, target, quant="f32", *more):
        command = ["convert", source, self.room / target, "--no-tokenizer", "--json", *more]
        done = self.program(*command, *(["--quant", quant] if quant else []))
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def tokens(self, model):
        done = self.program("run", model, "--prompt-ids", "1,2,3", "--max-tokens", 16, "--json", "--backend", "cpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["token_ids"]

    def save(self, folder, config, values, shapes, dtype):
        """The same model stored plainly."""
        return write_checkpoint(self.room / folder, config,
                                {name: Tensor(dtype, shapes[name], numbers) for name, numbers in values.items()})

    def check(self, name, config, matrices, shapes):
        tensors, values = make(name, matrices, shapes)
        shapes = {**shapes, **{module + ".weight": shape for module, shape in matrices.items()}}
        source = write_checkpoint(self.room / "source", {**config, "quantization_config": FORMATS[name][1]}, tensors)
        report = self.convert(source, "a")
        if matrices is MATRICES:
            expected = {name: floats(numbers) for name, numbers in values.items()}
            self.assertEqual(read_artefact(self.room / "a", "name"), expected)
        else:  # slots are put together of several tensors, or are parts of one
            self.convert(self.save("exact", config, values, shapes, "F32"), "b")
            self.assertEqual(read_artefact(self.room / "a"), read_artefact(self.room / "b"))
        self.assertTrue(any("matrices were quantised already" in note for note in report["notes"]), report["notes"])
        # Run from its folder a matrix is rounded once, to BF16.
        self.assertEqual(self.tokens(source), self.tokens(self.save("rounded", config, values, shapes, "BF16")))
        return values

    def test_the_numbers_of_the_small_formats(self):
        self.assertEqual([e2m1(c) for c in range(8)], [0, 0.5, 1, 1.5, 2, 3, 4, 6])
        self.assertEqual((e4m3(0x01), e4m3(0x08), e4m3(0x38), e4m3(0x7E)), (2.0**-9, 2.0**-6, 1, 448))
        self.assertEqual((e5m2(0x01), e5m2(0x3C), e5m2(0x7B)), (2.0**-16, 1, 57344))

    def test_every_code_of_fp8(self):
        codes = [c for c in range(256) if c & 0x7F != 0x7F] + [0, 0x80]
        tensors, values = make("fp8 with one scale")
        name = ATTENTION + "q_proj.weight"
        tensors[name] = Tensor("F8_E4M3", [HIDDEN, HIDDEN], codes * (HIDDEN * HIDDEN // 256))
        source = write_checkpoint(self.room / "s", config_of("fp8 with one scale"), tensors)
        scale = struct.unpack("<f", b"\0\0" + tensors[name + "_scale_inv"].data)[0]
        self.convert(source, "a")
        expected = floats([f32(e4m3(code) * scale) for code in codes])
        self.assertEqual(read_artefact(self.room / "a")["layer0.q_proj"][:1024], expected)

    def test_fused_matrices(self):
        """q, k and v in one tensor, gate and up in another, whose blocks of scales cross from one into the next."""
        matrices = {ATTENTION + "qkv_proj": (HIDDEN + 2 * 32, HIDDEN), ATTENTION + "o_proj": (HIDDEN, HIDDEN),
                    MLP + "gate_up_proj": (2 * FFN, HIDDEN), MLP + "down_proj": (HIDDEN, FFN)}  # fmt: skip
        config = {**CONFIG, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3"}
        for name in ("fp8 in blocks", "gptq", "nvfp4 of modelopt"):
            with self.subTest(name):
                self.setUp()
                self.check(name, config, matrices, PLAIN)

    def test_experts(self):
        config, shapes = self.moe()
        matrices = {m: s for m, s in MATRICES.items() if m.startswith(ATTENTION)}
        for e in range(4):
            for part, shape in (("gate_proj", (32, HIDDEN)), ("up_proj", (32, HIDDEN)), ("down_proj", (HIDDEN, 32))):
                matrices[f"{MLP}experts.{e}.{part}"] = shape
        for name in ("fp8 in blocks", "awq", "nvfp4 of compressed-tensors"):
            with self.subTest(name):
                self.setUp()
                self.check(name, config, matrices, shapes)

    def moe(self):
        shapes = {**PLAIN, MLP + "gate.weight": (4, HIDDEN), ATTENTION + "q_norm.weight": (32,),
                  ATTENTION + "k_norm.weight": (32,)}  # fmt: skip
        config = {**CONFIG, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 4,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True,
                  "head_dim": 32}  # fmt: skip
        return config, shapes

    def test_experts_may_be_stacked_or_apart_whatever_their_family_says(self):
        config, shapes = self.moe()
        config["quantization_config"] = FORMATS["fp8 in blocks"][1]  # [40, 24]
        attention = {m: s for m, s in MATRICES.items() if m.startswith(ATTENTION)}
        tensors, values = make("fp8 in blocks", attention, shapes)
        rng = random.Random(7)
        apart, scales = dict(tensors), []
        for part, rows, cols in (("gate_up_proj", 64, HIDDEN), ("down_proj", HIDDEN, 32)):
            codes, grids = [], []
            for e in range(4):
                one, numbers = fp8(rng, "x", rows, cols, (40, 24))
                codes.append(one["x.weight"].data)
                grids.append(one["x.weight_scale_inv"])
                names = ("gate_proj", "up_proj") if part == "gate_up_proj" else (part,)
                for i, name in enumerate(names):  # gate's rows, then up's
                    half = len(numbers) // len(names)
                    apart[f"{MLP}experts.{e}.{name}.weight"] = Tensor(
                        "F32", [rows // len(names), cols], numbers[i * half: (i + 1) * half])
            tensors[f"{MLP}experts.{part}"] = Tensor("F8_E4M3", [4, rows, cols], b"".join(codes))
            tensors[f"{MLP}experts.{part}_scale_inv"] = Tensor(
                "F32", [4, *grids[0].shape], b"".join(grid.data for grid in grids))
        stacked = write_checkpoint(self.room / "stacked", config, tensors)
        own = write_checkpoint(self.room / "apart", config, apart)
        self.convert(stacked, "a")
        self.convert(own, "b")
        expected = read_artefact(self.room / "b")
        self.assertEqual(read_artefact(self.room / "a"), expected)
        family = json.loads((ROOT / "families/qwen3_moe.json").read_text())
        experts = "{body}layers.{i}.mlp.experts."
        family["tensors"]["layer{i}.experts_gate_up"] = {"name": experts + "gate_up_proj", "role": "expert"}
        family["tensors"]["layer{i}.experts_down"] = {"name": experts + "down_proj", "role": "expert"}
        (self.room / "family.json").write_text(json.dumps(family))
        self.convert(own, "c", "f32", "--family", self.room / "family.json")
        self.assertEqual(read_artefact(self.room / "c"), expected)
        self.assertEqual(len(self.tokens(stacked)), 16)

    def test_the_error_of_quantising_again_is_told(self):
        tensors, values = make("fp8 in blocks")
        source = write_checkpoint(self.room / "s", config_of("fp8 in blocks"), tensors)
        report = self.convert(source, "a", "bf16")
        note = next(n for n in report["notes"] if "quantised already" in n)
        self.assertIn("7 matrices", note)
        numbers = [v for name in MATRICES for v in values[name + ".weight"]]
        lost = sum((bf16(v) - v) ** 2 for v in numbers)
        self.assertIn(f"{(lost / sum(v * v for v in numbers)) ** 0.5:.5f}", note)
        self.assertEqual([n for n in self.convert(source, "b", "q4_k_m")["notes"] if "error of 0.00" in n], [])

    def test_modules_that_were_left_alone_keep_their_precision_unless_a_recipe_is_named(self):
        tensors, values = make("int4 packed")
        keep = ATTENTION + "q_proj"
        for ending in ("_packed", "_scale", "_shape"):
            del tensors[keep + ".weight" + ending]
        tensors[keep + ".weight"] = Tensor("BF16", MATRICES[keep], values[keep + ".weight"])
        config = config_of("int4 packed")
        for patterns in ([keep], ["re:.*q_proj$"]):
            config["quantization_config"] = {**config["quantization_config"], "ignore": patterns}
            source = write_checkpoint(self.room / "s", config, tensors)
            self.convert(source, "a", None, "--force")
            manifest = json.loads((self.room / "a/manifest.json").read_text())
            dtypes = {t["slot"]: t["dtype"] for t in manifest["tensors"].values()}
            self.assertEqual(dtypes["layer0.q_proj"], "BF16")
            self.assertEqual(dtypes["layer0.k_proj"], "Q4_K_M")
        self.convert(source, "b", "f32")
        expected = floats([bf16(value) for value in values[keep + ".weight"]])
        self.assertEqual(read_artefact(self.room / "b")["layer0.q_proj"], expected)

    def refusal(self, name, tensors, quantisation=None, runs_too=False):
        config = config_of(name)
        if quantisation is not None:
            config["quantization_config"] = quantisation
        source = write_checkpoint(self.room / "bad", config, tensors)
        done = self.program("convert", source, self.room / "out", "--no-tokenizer", "--quant", "f32")
        self.assertIn(done.returncode, (4, 5), done.stderr)
        self.assertFalse((self.room / "out").exists())
        if not runs_too:
            return done.stderr
        run = self.program("run", source, "--prompt-ids", "1", "--max-tokens", 1, "--backend", "cpu")
        self.assertEqual(run.returncode, done.returncode, run.stderr)
        return done.stderr

    def test_methods_that_are_not_read_are_named(self):
        for method in ("aqlm", "hqq", "eetq", "exl2", "exl3", "quanto", "torchao", "vptq", "higgs", "spqr", "bitnet"):
            text = self.refusal("awq", {}, {"quant_method": method}, runs_too=method == "aqlm")
            self.assertIn(f"got {method}", text)
            self.assertIn("a GGUF of it", text)
        tensors = make("awq")[0]
        for quantisation, word in (
            ({"quant_method": "awq", "version": "GEMV", "group_size": 32}, "version 'gemv' of awq"),
            ({**GPTQ, "checkpoint_format": "marlin"}, "checkpoint_format 'marlin' of gptq"),
            ({**COMPRESSED, "format": "marlin-24"}, "format 'marlin-24' of compressed-tensors"),
            ({**COMPRESSED, "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse-24-bitmask"),
            ({**COMPRESSED, "transform_config": {"config_groups": {"R1": {}}}}, "transform_config"),
            ({"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ"}, "quant_algo 'NVFP4_AWQ' of modelopt"),
            ({"quant_method": "auto-round", "packing_format": "auto_round:gguf"}, "packing_format 'auto_round:gguf'"),
            ({"bits": 4}, "got unknown"),
        ):  # fmt: skip
            self.assertIn(word, self.refusal("awq", tensors, quantisation))

    def spoil(self, name, text, changes, quantisation=None):
        """One of the checkpoint's tensors is another (dtype, shape, values) or, None, missing: `text` is told."""
        with self.subTest(name=name, text=text):
            tensors = make(name)[0]
            for key, tensor in changes.items():
                tensors.pop(key, None)
                if tensor:
                    tensors[key] = Tensor(*tensor)
            self.assertIn(text, self.refusal(name, tensors, quantisation))

    MODULE, WEIGHT = MLP + "down_proj", MLP + "down_proj.weight"  # [64, 96]

    def test_fp8_and_int8_that_do_not_fit_together_are_refused(self):
        scale = self.WEIGHT + "_scale_inv"
        self.spoil("fp8 in blocks", "but its scales are missing", {scale: None})
        self.spoil("fp8 in blocks", "not fit a matrix of 64 rows and 96 columns", {scale: ("F32", [2, 3], [1] * 6)})
        self.spoil("fp8 in blocks", "does not fit", {}, {"quant_method": "fp8"})  # nobody says in which blocks
        both = {"quant_method": "fp8", "weight_block_size": [40, 24], "other": {"block_structure": [39, 24]}}
        self.spoil("fp8 in blocks", "fits in more than one way", {}, both)
        self.spoil("fp8 in blocks", "not a finite number", {self.WEIGHT: ("F8_E4M3", [64, 96], [0x7F] * 6144)})
        self.spoil("fp8 in blocks", "holds no scales", {scale: ("I32", [1], [1])})
        self.spoil("fp8 with one scale", "disagree", {self.WEIGHT: ("F8_E4M3", [40, 96], [1] * 3840)})
        self.spoil("fp8 with one scale", "is no matrix", {self.WEIGHT: ("F8_E4M3", [6144], [1] * 6144)})
        self.spoil("int8", "a zero point for each scale", {self.WEIGHT + "_zero_point": ("I8", [3], [0] * 3)})

    def test_fp4_that_does_not_fit_together_is_refused(self):
        scale, factor = self.WEIGHT + "_scale", self.WEIGHT + "_global_scale"
        self.spoil("nvfp4 of modelopt", "weight_scale_2 is missing", {self.WEIGHT + "_scale_2": None})
        self.spoil("nvfp4 of modelopt", "a scale for every 16 weights", {scale: ("F8_E4M3", [64, 8], [1] * 512)})
        self.spoil("nvfp4 of compressed-tensors", "weight_global_scale is missing", {factor: None})
        self.spoil("nvfp4 of compressed-tensors", "weight_scale is missing", {scale: None})
        self.spoil("nvfp4 of compressed-tensors", "one F32 for each matrix", {factor: ("F32", [2], [1, 1])})
        self.spoil("nvfp4 of compressed-tensors", "not a finite number", {factor: ("F32", [1], [0])})
        self.spoil("mxfp4 of compressed-tensors", "a scale for every 32 weights", {scale: ("U8", [64, 6], [1] * 384)})
        self.spoil("mxfp4 of compressed-tensors", "not a finite number", {scale: ("U8", [64, 3], [255] * 192)})

    def test_packed_integers_that_do_not_fit_together_are_refused(self):
        shape, scales, zeros, index = (self.MODULE + end for end in (".weight_shape", ".scales", ".qzeros", ".g_idx"))
        self.spoil("int4 packed", "weight_shape is missing", {shape: None})
        for rows, cols in ((64, 4), (65, 96), (64, 2**62), (-1, 96), (0, 0)):
            self.spoil("int4 packed", "does not pack", {shape: ("I64", [2], [rows, cols])})
        self.spoil("int4 packed with zero points", "packed zero points",
                   {self.WEIGHT + "_zero_point": ("I32", [64, 3], [0] * 192)})  # fmt: skip
        self.spoil("int8 packed by index", "a group that is none of 6",
                   {self.WEIGHT + "_g_idx": ("I32", [96], [6] * 96)})  # fmt: skip
        self.spoil("gptq", "qzeros is missing", {zeros: None})
        self.spoil("gptq", "scales is missing", {scales: None})
        self.spoil("gptq", "quantised and plainly", {self.WEIGHT: ("BF16", [64, 96], [0] * 6144)})
        self.spoil("gptq", "do not pack one matrix", {scales: ("F16", [3, 63], [1] * 189)})
        self.spoil("gptq", "do not pack one matrix", {zeros: ("I32", [3, 7], [0] * 21)})
        self.spoil("gptq", "is not a matrix of I32 words", {zeros: ("I32", [24], [0] * 24)})
        self.spoil("gptq of 3 bits", "zero points of 3 bits less one", {}, {**GPTQ, "bits": 3})
        self.spoil("gptq with an index", "a group that is none of 3", {index: ("I32", [96], [0xFFFFFFFF] * 96)})
        self.spoil("gptq with an index", "not one I32 for each of 96 columns", {index: ("I32", [95], [0] * 95)})
        self.spoil("awq", "no group_size of config.json (128)", {}, {"quant_method": "awq", "group_size": 128})

    def test_tables_of_bitsandbytes_that_do_not_fit_together_are_refused(self):
        state = self.WEIGHT + ".quant_state.bitsandbytes__nf4"
        self.spoil("nf4", "absmax is missing", {self.WEIGHT + ".absmax": None})
        self.spoil("nf4", "quant_state.bitsandbytes__fp4 is missing", {state: None})
        for text, json_text in (
            ("no description of a matrix", b"[1, 2"),
            ("no description of a matrix", b'{"shape": [0, 96], "blocksize": 64}'),
            ("no description of a matrix", b'{"shape": [64, 96], "blocksize": 0}'),
            ("too large a matrix", b'{"shape": [4611686018427387904, 4611686018427387904], "blocksize": 64}'),
            ("does not hold the 6208 weights", b'{"shape": [64, 97], "blocksize": 64}'),
            ("a scale for each of 192 blocks", b'{"shape": [64, 96], "blocksize": 32}'),
        ):
            self.spoil("nf4", text, {state: ("U8", [len(json_text)], json_text)})
        self.spoil("nf4", "no table of 16 values", {self.WEIGHT + ".quant_map": ("F32", [15], [0] * 15)})
        self.spoil("nf4 nested", "nested scales of another", {self.WEIGHT + ".nested_absmax": ("F32", [1], [1])})

    def test_methods_that_no_config_tells_are_known_by_their_tensors(self):
        for ending, found in (("q_invperm", "EXL2"), ("trellis", "EXL3"), ("Qidxs", "QuIP#"), ("codebooks", "AQLM"),
                              ("W_q", "HQQ"), ("weight._data", "Quanto"), ("pre_quant_scale", "AWQ of ModelOpt")):
            text = self.refusal("awq", {f"{self.MODULE}.{ending}": Tensor("I32", [1], [0])}, {"quant_method": "fp8"})
            self.assertIn(f"quantised by {found}, which cannot be read", text)
        tensors = {self.WEIGHT: Tensor("I32", [1], [0]), self.MODULE + ".scales": Tensor("F16", [1], [0])}
        tensors[self.WEIGHT].dtype = "U32"
        self.assertIn("quantised by MLX", self.refusal("awq", tensors, {"quant_method": "fp8"}))

    def test_without_a_config_packed_words_have_no_meaning(self):
        tensors = make("gptq")[0]
        source = write_checkpoint(self.room / "s", CONFIG, tensors)
        for command in (["convert", source, self.room / "out", "--no-tokenizer"], ["run", source, "--prompt-ids", "1"]):
            done = self.program(*command)
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertIn("no quantization_config", done.stderr)


def formats_test(name):
    return lambda self: self.check(name, CONFIG, MATRICES, PLAIN) and None


for name in FORMATS:
    setattr(Quantised, "test_format_" + "".join(c if c.isalnum() else "_" for c in name), formats_test(name))

if __name__ == "__main__":
    unittest.main()
