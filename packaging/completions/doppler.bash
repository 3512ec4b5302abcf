# bash completion of doppler, made by tools/shell_files.py
_doppler() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} path="" words="" word
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$path $word" in
      " batch" | " bench" | " config" | " convert" | " debug" | " devices" | " doctor" | " du" | " inspect" | " list" | " perplexity" | " pull" | " rm" | " run" | " serve" | " synth" | " test" | " tokenize" | " verify" | "bench batch" | "bench check" | "bench inference" | "bench kernels" | "bench peers" | "bench serve" | "test correctness") path=${path:+$path }$word ;;
    esac
  done
  case "$previous" in
    --endpoint) COMPREPLY=($(compgen -W "chat completions" -- "$current")); return ;;
    --surface) COMPREPLY=($(compgen -W "native browser" -- "$current")); return ;;
  esac
  case "$path" in
    "") words="run serve batch pull list du rm convert inspect verify synth bench debug perplexity tokenize devices doctor test config --config --help --log --offline --trace --trace-file --version" ;;
    "run") words="--backend --chat --config --context --decode-batch --device --gpu-memory --grammar --help --json --json-object --json-schema --log --max-tokens --min-p --no-self-test --no-verify --offline --prompt --prompt-file --prompt-ids --raw --repeat-penalty --sandbox --seed --speculate --stop --system --temperature --threads --top-k --top-p --trace --trace-file --version" ;;
    "serve") words="--allow-host --api-key --api-key-file --backend --body-limit --cache-memory --config --context --cors --device --drain --gpu-memory --help --host --idle-unload --isolate --log --log-json --log-text --no-auth --no-verify --offline --port --queue --sandbox --sequences --threads --trace --trace-file --version --watch" ;;
    "batch") words="--backend --cache-memory --config --context --device --gpu-memory --help --log --no-verify --offline --ordered --sequences --shard --threads --trace --trace-file --version" ;;
    "pull") words="--config --connections --dry-run --help --json --log --no-convert --offline --trace --trace-file --version" ;;
    "list") words="--config --help --json --log --offline --trace --trace-file --version" ;;
    "du") words="--config --help --json --log --offline --trace --trace-file --version" ;;
    "rm") words="--config --dry-run --help --log --offline --trace --trace-file --version" ;;
    "convert") words="--config --family --force --help --id --ignore-key --json --log --merge-lora --no-tokenizer --offline --quant --sandbox --shard-size --threads --trace --trace-file --version" ;;
    "inspect") words="--config --context --help --json --log --offline --plan --tensors --trace --trace-file --version" ;;
    "verify") words="--config --help --json --log --no-hashes --offline --trace --trace-file --version" ;;
    "synth") words="--config --force --help --id --json --log --offline --quant --seed --shard-size --threads --trace --trace-file --version" ;;
    "bench") words="inference check kernels batch serve peers --config --help --log --offline --trace --trace-file --version" ;;
    "bench inference") words="--backend --compare --config --context --decode-batch --depths --device --gpu-memory --help --json --log --offline --output --plot --profile --profile-dir --prompt-tokens --prompts --reference --runs --speculate --surface --tap-layers --threads --tokens --trace --trace-file --version --versus --workload" ;;
    "bench check") words="--backend --config --help --log --offline --trace --trace-file --version" ;;
    "bench kernels") words="--checked --config --device --filter --help --json --log --offline --plain --trace --trace-file --version" ;;
    "bench batch") words="--backend --config --device --help --json --log --offline --output --prompt-tokens --runs --sequences --threads --tokens --trace --trace-file --version" ;;
    "bench serve") words="--api-key --body --clients --config --endpoint --help --json --log --model --offline --output --plot --prompt-tokens --rate --remote --requests --seconds --seed --shared-prefix --slo-tpot-ms --slo-ttft-ms --timeout --tokens --trace --trace-file --version" ;;
    "bench peers") words="--config --help --install --json --log --offline --prompt-ids --prompt-tokens --quant --runs --threads --tokens --trace --trace-file --version" ;;
    "debug") words="--all --backend --bound --chat --compare --config --context --device --dump --gpu-memory --head --help --html --json --layers --log --nan-check --no-verify --offline --position --probe --prompt --prompt-file --prompt-ids --threads --tokens --trace --trace-file --version --watch" ;;
    "perplexity") words="--against --backend --config --device --gpu-memory --help --ids --json --log --no-verify --offline --stride --text --threads --trace --trace-file --version --window" ;;
    "tokenize") words="--chat --config --help --json --jsonl --log --offline --trace --trace-file --version" ;;
    "devices") words="--config --help --json --log --offline --trace --trace-file --version" ;;
    "doctor") words="--config --device --full --help --json --log --offline --trace --trace-file --version" ;;
    "test") words="correctness --config --help --log --offline --trace --trace-file --version" ;;
    "test correctness") words="--config --device --filter --help --json --log --offline --plain --trace --trace-file --unchecked --verbose --version" ;;
    "config") words="--config --help --log --offline --show --trace --trace-file --version" ;;
  esac
  if [[ $current == -* || -z $path ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    COMPREPLY=($(compgen -W "${words%%--*}" -- "$current") $(compgen -f -- "$current"))
    compopt -o filenames 2>/dev/null
  fi
}
complete -F _doppler doppler
