# For shell scripts that a person watches (. tools/steps.sh): one line per step, how far it is, the rest in a log.
#   log=FILE                     where the output of every step goes
#   step TITLE COMMAND [ARG…]    runs the command; when it fails, says so with the log's end and returns its status
#   build_step TITLE COMMAND…    the same, but says nothing where ninja finds nothing to do
# How far a step is comes from the command's own output: ninja's [12/438], or the lines of apt-get's APT::Status-Fd.

# Copies standard input to the log, and shows percentages: in place on a terminal, else at every quarter.
watch_step() {
  step_next=25
  while IFS= read -r step_line || [ -n "$step_line" ]; do
    case $step_line in dlstatus:* | pmstatus:*) ;; *) printf '%s\n' "$step_line" >&9 ;; esac
    case $step_line in
      *"Re-checking globbed directories"*) continue ;;
      \[[0-9]*/[0-9]*\]*)
        step_far=${step_line#?}
        step_of=${step_far#*/}
        step_percent=$((100 * ${step_far%%/*} / ${step_of%%]*}))
        ;;
      # status:package:percent of this phase:text. Downloading is the first half, unpacking the second.
      dlstatus:* | pmstatus:*)
        step_percent=${step_line#*:*:}
        step_percent=${step_percent%%[.:]*}
        case $step_line in d*) step_percent=$((step_percent / 2)) ;; *) step_percent=$((50 + step_percent / 2)) ;; esac
        ;;
      *) continue ;;
    esac
    [ -e "$log.shown" ] || { : >"$log.shown" && printf '%s …' "$1" >&2; }
    if [ -t 2 ]; then
      printf '\r\033[K%s … %d %%' "$1" "$step_percent" >&2
    elif [ "$step_percent" -ge "$step_next" ] && [ "$step_percent" -lt 100 ]; then
      printf ' %d %%' "$step_percent" >&2
      step_next=$((step_percent / 25 * 25 + 25))
    fi
  done 9>>"$log"
}

build_step() {
  step_title=$1
  shift
  mkdir -p "$(dirname "$log")"
  printf '\n== %s: %s\n' "$step_title" "$*" >>"$log"
  step_start=$(date +%s)
  rm -f "$log.status"
  { "$@" 2>&1 || echo $? >"$log.status"; } | watch_step "$step_title"
  if [ -e "$log.status" ]; then
    read -r step_status <"$log.status"
    rm -f "$log.status" "$log.shown"
    printf '\n%s failed. The end of %s:\n' "$step_title" "$log" >&2
    awk '/^== /{n = 0} {line[n++] = $0}
         END {for (i = n > 30 ? n - 30 : 1; i < n; i++) print "  | " line[i]}' "$log" >&2
    return "$step_status"
  fi
  [ -e "$log.shown" ] || return 0
  rm -f "$log.shown"
  [ -t 2 ] && printf '\r\033[K%s …' "$step_title" >&2
  printf ' done in %d s\n' $(($(date +%s) - step_start)) >&2
}

step() {
  mkdir -p "$(dirname "$log")"
  : >"$log.shown"
  printf '%s …' "$1" >&2
  build_step "$@"
}
