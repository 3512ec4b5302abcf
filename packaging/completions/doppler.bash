# bash completion of doppler, made by tools/shell_files.py
_doppler() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} path="" words="" word
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$path $word" in
      " batch" | " bench" | " config" | " convert" | " debug" | " devices" | " doctor" | " du" | " embed" | " inspect" | " list" | " perplexity" | " pull" | " rm" | " run" | " serve" | " synth" | " test" | " tokenize" | " verify" | "batch collect" | "batch submit" | "batch work" | "bench batch" | "bench check" | "bench inference" | "bench kernels" | "bench peers" | "bench serve" | "test correctness" | "test inference") path=${path:+$path }$word ;;
    esac
  done
  case "$previous" in
    --endpoint) COMPREPLY=($(compgen -W "chat completions" -- "$current")); return ;;
    --surface) COMPREPLY=($(compgen -W "native browser" -- "$current")); return ;;
    --watchdog) COMPREPLY=($(compgen -W "off warn stop" -- "$current")); return ;;
  esac
  case "$path" in
    "") words="run serve batch pull list du rm convert inspect verify synth bench debug perplexity embed tokenize devices doctor test config --config --debug --help --log --offline --quiet --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "run") words="--backend --chat --config --context --debug --decode-batch --device --gpu-memory --grammar --help --json --json-object --json-schema --kernel --log --lora --max-tokens --min-p --no-self-test --no-verify --offline --prompt --prompt-file --prompt-ids --quiet --raw --repeat-penalty --sandbox --seed --speculate --stop --system --temperature --threads --top-k --top-p --trace --trace-file --trace-layers --trace-steps --verbose --version --watchdog" ;;
    "serve") words="--allow-host --api-key --api-key-file --backend --body-limit --cache-memory --config --context --cors --debug --device --drain --gpu-memory --help --host --idle-unload --isolate --kernel --log --log-json --log-text --lora --no-auth --no-verify --offline --port --queue --quiet --sandbox --sequences --threads --trace --trace-file --trace-layers --trace-steps --verbose --version --watch --watchdog" ;;
    "batch") words="submit work collect --backend --cache-memory --config --context --debug --device --gpu-memory --help --kernel --log --lora --no-verify --offline --ordered --quiet --sequences --shard --threads --trace --trace-file --trace-layers --trace-steps --verbose --version --watchdog" ;;
    "batch submit") words="--config --credentials --debug --help --log --offline --quiet --server --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "batch work") words="--ack-wait --backend --cache-memory --config --context --credentials --debug --device --gpu-memory --help --kernel --log --lora --no-verify --offline --quiet --sequences --server --threads --trace --trace-file --trace-layers --trace-steps --verbose --version --watchdog" ;;
    "batch collect") words="--config --credentials --debug --help --log --offline --ordered --quiet --remove --server --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "pull") words="--config --connections --debug --dry-run --help --json --log --no-convert --offline --quiet --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "list") words="--config --debug --help --json --log --offline --quiet --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "du") words="--config --debug --help --json --log --offline --quiet --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "rm") words="--config --debug --dry-run --help --log --offline --quiet --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "convert") words="--config --debug --family --force --help --id --ignore-key --json --log --merge-lora --no-tokenizer --offline --quant --quiet --sandbox --shard-size --threads --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "inspect") words="--config --context --debug --help --json --log --offline --plan --quiet --tensors --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "verify") words="--config --debug --help --json --log --no-hashes --offline --quiet --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "synth") words="--config --debug --force --help --id --json --log --offline --quant --quiet --seed --shard-size --threads --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "bench") words="inference check kernels batch serve peers --config --debug --help --log --offline --quiet --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "bench inference") words="--backend --compare --config --context --debug --decode-batch --depths --device --gpu-memory --headed --help --json --kernel --log --lora --model --offline --output --plot --profile --profile-dir --prompt-tokens --prompts --quiet --reference --runs --speculate --surface --tap-layers --threads --tokens --trace --trace-file --trace-layers --trace-steps --verbose --version --versus --workload" ;;
    "bench check") words="--backend --config --debug --help --log --offline --quiet --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "bench kernels") words="--checked --config --debug --device --filter --help --html --json --log --offline --plain --quiet --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "bench batch") words="--backend --config --debug --device --help --json --log --offline --output --prompt-tokens --quiet --runs --sequences --threads --tokens --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "bench serve") words="--api-key --body --clients --config --debug --endpoint --help --json --log --model --offline --output --plot --prompt-tokens --quiet --rate --remote --requests --seconds --seed --shared-prefix --slo-tpot-ms --slo-ttft-ms --timeout --tokens --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "bench peers") words="--config --debug --help --install --json --log --offline --prompt-ids --prompt-tokens --quant --quiet --runs --threads --tokens --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "debug") words="--all --backend --bound --bundle --chat --compare --config --context --debug --device --dump --gpu-memory --head --help --html --json --kernel --layers --log --lora --model --nan-check --no-verify --offline --position --probe --prompt --prompt-file --prompt-ids --quiet --threads --tokens --trace --trace-file --trace-layers --trace-steps --verbose --version --watch" ;;
    "perplexity") words="--against --backend --config --debug --device --gpu-memory --help --ids --json --kernel --log --lora --no-verify --offline --quiet --stride --text --threads --trace --trace-file --trace-layers --trace-steps --verbose --version --window" ;;
    "embed") words="--backend --config --context --debug --device --dimensions --gpu-memory --help --jsonl --log --no-verify --offline --prompt-name --quiet --threads --trace --trace-file --trace-layers --trace-steps --truncate --verbose --version" ;;
    "tokenize") words="--chat --config --debug --help --json --jsonl --log --offline --quiet --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "devices") words="--config --debug --help --json --log --offline --quiet --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "doctor") words="--config --debug --device --full --help --json --log --offline --quiet --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "test") words="correctness inference --config --debug --help --log --offline --quiet --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "test correctness") words="--config --debug --device --filter --help --json --log --offline --perf --plain --quiet --trace --trace-file --trace-layers --trace-steps --unchecked --verbose --version" ;;
    "test inference") words="--backend --config --debug --device --help --json --kernel --log --model --offline --perf --prompt --quiet --threads --tokens --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
    "config") words="--config --debug --help --log --offline --quiet --show --trace --trace-file --trace-layers --trace-steps --verbose --version" ;;
  esac
  if [[ $current == -* || -z $path ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    COMPREPLY=($(compgen -W "${words%%--*}" -- "$current") $(compgen -f -- "$current"))
    compopt -o filenames 2>/dev/null
  fi
}
complete -F _doppler doppler
