#!/usr/bin/env python3
"""Writes what Hugging Face transformers computes on a checkpoint, stage by stage, for `doppler debug --compare`.

    python3 tools/dump_reference.py CHECKPOINT OUT --prompt "The color of the sky is"
    doppler debug CONVERTED --compare OUT

OUT becomes a folder with reference.safetensors (stage name -> f32 [tokens, width], names as `doppler inspect --plan`
prints them) and reference.json (prompt ids, greedy continuation, the margin of every choice). Needs torch 2,
transformers (4.40 or later, 5 too) and safetensors. Everything runs in float32 on the CPU unless --dtype or --device
say otherwise; weights in MXFP4 are unpacked first.
"""
import argparse
import json
import os
import sys

# Our stage -> the submodules of a decoder layer whose output it is; the first that exists is taken.
LAYER_STAGES = {
    "attn_norm": ["input_layernorm"],
    "q_proj": ["self_attn.q_proj"],
    "k_proj": ["self_attn.k_proj"],
    "v_proj": ["self_attn.v_proj"],
    "attn_out": ["self_attn.o_proj"],
    "post_attn_norm": ["post_attention_layernorm"],
    "pre_ffn_norm": ["pre_feedforward_layernorm"],
    "gate_proj": ["mlp.gate_proj"],
    "up_proj": ["mlp.up_proj"],
    "ffn_out": ["mlp", "feed_forward", "block_sparse_moe"],
    "post_ffn_norm": ["post_feedforward_layernorm"],
}
# The same for what a submodule is given. A layer's second norm is named for its place: after attention, or before the
# feed-forward where attention has a norm of its own.
INPUT_STAGES = {
    "attention": ["self_attn.o_proj"],
    "attn_residual": ["pre_feedforward_layernorm", "post_attention_layernorm"],
    "glu": ["mlp.down_proj"],
}
# Norms over heads give [tokens, heads, head_dim], which is one row per token for us.
HEAD_STAGES = {"q_norm": ["self_attn.q_norm"], "k_norm": ["self_attn.k_norm"]}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="a folder or a name on the hub")
    parser.add_argument("out", help="the folder to write")
    parser.add_argument("--prompt", help="the text, as it is (the tokenizer adds its special tokens)")
    parser.add_argument("--prompt-ids", help="the text as token ids: 2,5,9")
    parser.add_argument("--tokens", type=int, default=32, help="length of the greedy continuation")
    parser.add_argument("--layers", help="only these layers: 0,12,25 (default: all)")
    parser.add_argument("--dtype", default="float32", help="float32, bfloat16 or float16")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if (options.prompt is None) == (options.prompt_ids is None):
        parser.error("give --prompt or --prompt-ids")
    return options


def submodule(layer, names):
    for name in names:
        module = layer
        for part in name.split("."):
            module = getattr(module, part, None)
            if module is None:
                break
        else:
            return module
    return None


def decoder_of(model):
    """The module that has the layers, wherever a family puts it."""
    for path in ("model", "model.language_model", "language_model.model", "transformer", "model.text_model"):
        module = model
        for part in path.split("."):
            module = getattr(module, part, None)
            if module is None:
                break
        if module is not None and hasattr(module, "layers"):
            return module
    sys.exit("dump_reference: no decoder layers found in " + type(model).__name__)


def load_model(options, torch, transformers):
    dtype = getattr(torch, options.dtype)
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    # The argument has its short name since 4.56; without it 5 takes the checkpoint's type, 4 float32.
    asked = {"dtype" if version >= (4, 56) else "torch_dtype": dtype, "attn_implementation": "eager"}
    quantisation = getattr(transformers.AutoConfig.from_pretrained(options.checkpoint), "quantization_config", None)
    if quantisation is not None:
        method = quantisation["quant_method"] if isinstance(quantisation, dict) else quantisation.quant_method
        if str(getattr(method, "value", method)) == "mxfp4":
            # Packed kernels, where a machine has them, round activations to bfloat16.
            asked["quantization_config"] = transformers.Mxfp4Config(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(options.checkpoint, **asked)
    # Unpacked experts come in bfloat16 whatever was asked. Buffers keep their type: the rotary frequencies are float32.
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)
    return model.to(options.device).eval()


def main():
    options = arguments()
    if os.path.exists(options.out):
        sys.exit(f"dump_reference: {options.out} is there already")
    try:
        import torch
        import transformers
        from safetensors.torch import save_file
    except ImportError as missing:
        sys.exit(f"dump_reference: {missing}. Install torch, transformers and safetensors first")
    model = load_model(options, torch, transformers)
    if options.prompt_ids:
        ids = [int(word) for word in options.prompt_ids.split(",")]
    else:
        ids = transformers.AutoTokenizer.from_pretrained(options.checkpoint)(options.prompt)["input_ids"]

    stages = {}

    def keep(name):
        def hook(_module, _inputs, output):
            value = output[0] if isinstance(output, (tuple, list)) else output
            stages[name] = value.detach().float().cpu().reshape(len(ids), -1).contiguous()
        return hook

    def keep_input(name):
        return lambda module, inputs, _output: keep(name)(module, None, inputs[0])

    decoder = decoder_of(model)
    wanted = set(range(len(decoder.layers)))
    if options.layers is not None:
        asked = {int(word) for word in options.layers.split(",")}
        if not asked <= wanted:
            sys.exit(f"dump_reference: no layer {min(asked - wanted)}; there are {len(wanted)}")
        wanted = asked
    hooks = [decoder.norm.register_forward_hook(keep("final_norm"))]
    # The stage is the residual stream as the first layer gets it: some families scale the embedding outside its module.
    hooks.append(decoder.layers[0].register_forward_pre_hook(
        lambda _m, inputs, kwargs: keep("embed")(None, None, inputs[0] if inputs else kwargs["hidden_states"]),
        with_kwargs=True))
    for number, layer in enumerate(decoder.layers):
        if number not in wanted:
            continue
        hooks.append(layer.register_forward_hook(keep(f"layer{number}.out")))
        for stage, names in LAYER_STAGES.items():
            module = submodule(layer, names)
            if module is not None:
                hooks.append(module.register_forward_hook(keep(f"layer{number}.{stage}")))
        for stage, names in INPUT_STAGES.items():
            module = submodule(layer, names)
            if module is not None:
                hooks.append(module.register_forward_hook(keep_input(f"layer{number}.{stage}")))
        for stage, names in HEAD_STAGES.items():
            module = submodule(layer, names)
            if module is not None:
                projection = submodule(layer, [names[0].replace("_norm", "_proj")])
                hooks += head_hooks(stages, f"layer{number}.{stage}", len(ids), projection, module)

    with torch.no_grad():
        tokens = torch.tensor([ids], device=options.device)
        logits = model(tokens, use_cache=False).logits
        stages["logits"] = logits[0].detach().float().cpu().contiguous()
        for hook in hooks:
            hook.remove()
        greedy, margins, text = [], [], list(ids)
        for _ in range(options.tokens):
            row = model(torch.tensor([text], device=options.device), use_cache=False).logits[0, -1].float()
            best = torch.topk(row, 2)
            greedy.append(int(best.indices[0]))
            margins.append(float(best.values[0] - best.values[1]))
            text.append(greedy[-1])

    part = options.out.rstrip("/") + ".part"
    os.makedirs(part, exist_ok=True)
    save_file(stages, os.path.join(part, "reference.safetensors"),
              metadata={"prompt_ids": json.dumps(ids), "source": f"transformers {transformers.__version__}"})
    with open(os.path.join(part, "reference.json"), "w") as file:
        json.dump({"source": f"transformers {transformers.__version__}, {options.dtype}", "prompt_ids": ids,
                   "greedy_ids": greedy, "greedy_margin": margins,
                   "max_abs": {name: float(value.abs().max()) for name, value in stages.items()}}, file, indent=1)
    os.rename(part, options.out)
    print(f"{len(stages)} stages of {len(ids)} tokens in {options.out}")


def head_hooks(stages, name, rows, projection, norm):
    """A norm over heads sees [1, heads, tokens, dim] or [1, tokens, heads, dim], as the family likes. Where there are
    as many heads as tokens the shape does not tell, but the norm's input does: in our order it is what was projected.
    """
    projected = []

    def keep_projection(_module, _inputs, output):
        projected[:] = [output.detach().reshape(rows, -1)]

    def hook(_module, inputs, output):
        value = output.detach().float().cpu()[0]
        if not inputs[0].detach().reshape(rows, -1).equal(projected[0]):
            value = value.transpose(0, 1)
        stages[name] = value.reshape(rows, -1).contiguous()
    return [projection.register_forward_hook(keep_projection), norm.register_forward_hook(hook)]


if __name__ == "__main__":
    main()
