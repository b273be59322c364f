#!/usr/bin/env bash
# Usage: tests/scripts_test.sh
#
# The scripts refuse what they do not know with exit status 2 and a sentence, explain themselves, and
# change nothing while doing so. Nothing is installed or built here.
set -euo pipefail
cd "$(dirname "$0")/.."
faults=0

fault() {
  printf 'FAILED: %s\n' "$*" >&2
  faults=$((faults + 1))
}

# refuses PATTERN CMD...: exit status 2, one line on stderr that matches, nothing on stdout.
refuses() {
  local pattern=$1 out err rc=0
  shift
  err=$("$@" 2>&1 >/dev/null </dev/null) || rc=$?
  out=$("$@" 2>/dev/null </dev/null) || true
  ((rc == 2)) || fault "$*: exit status $rc, not 2"
  [[ $err =~ $pattern && $(wc -l <<<"$err") -eq 1 ]] || fault "$*: says '$err'"
  [[ -z $out ]] || fault "$*: writes '$out' to stdout"
}

# prints PATTERN CMD...: exit status 0 and a text that matches.
prints() {
  local pattern=$1 out
  shift
  out=$("$@" 2>&1 </dev/null) || fault "$*: exit status $?"
  [[ $out =~ $pattern ]] || fault "$*: says '$out'"
}

for script in setup demo test fuzz bare format tidy gpu-check peers compat; do
  refuses "^$script: unknown .*--nonsense; see scripts/$script --help" "scripts/$script" --nonsense
  prints "^Usage: scripts/$script " "scripts/$script" --help
done
refuses 'unknown group nonsense \(there are' scripts/setup nonsense
refuses 'unknown stage nonsense \(there are checks' scripts/test nonsense
refuses 'unknown argument nonsense' scripts/bare nonsense
refuses 'unknown peer nonsense \(there are' scripts/peers nonsense
refuses 'unknown argument nonsense' scripts/fuzz nonsense
refuses '--epochs needs a number' scripts/demo --epochs
refuses '--epochs needs a number' scripts/demo --epochs none
refuses '--epochs needs a number' scripts/demo --epochs 0
refuses '--sim needs the name' scripts/demo --sim
refuses '--out needs a value' scripts/gpu-check --out
refuses 'unknown option --nonsense' bash .ci/run --nonsense
prints 'debootstrap' scripts/setup --list bare
prints 'cmake.*clang-tidy' scripts/setup --list

duplicates=$(scripts/setup --list build test deploy fuzz bare peers bench | sort | uniq -d)
[[ -z $duplicates ]] || fault "scripts/packages lists twice: $duplicates"

((faults == 0)) || exit 1
echo "the scripts refuse what they do not know"
