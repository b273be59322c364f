# shellcheck shell=bash
# What the scripts share: messages, packages, Python environments, builds. Sourced, never run.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/packages
source "$root/scripts/packages"
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/zeus

say() { printf '== %s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }
usage_error() { printf '%s: %s; see %s --help\n' "${0##*/}" "$*" "$0" >&2; exit 2; }
have() { command -v "$1" >/dev/null; }

# minutes SECONDS: as a number with one decimal.
minutes() { printf '%d.%d' $(($1 / 60)) $(($1 % 60 / 6)); }

# need TOOL GROUP: stops with the way out when a tool of that package group is absent.
need() { have "$1" || die "$1 is not installed; run scripts/setup $2"; }

# The help of a script is the comment at its head, after the first line.
print_help() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }

# Recorded data (traces, published results) may lie beside the checkout; tests that need it skip themselves without it.
find_data() {
  local beside=$root/../shared/data
  if [[ -z ${ZEUS_DATA:-} && -d $beside ]]; then ZEUS_DATA=$(cd "$beside" && pwd); fi
  if [[ -n ${ZEUS_DATA:-} ]]; then export ZEUS_DATA; fi
}

# --- packages ---

# missing_packages GROUP...: those that are not installed, one a line.
missing_packages() {
  local group name wanted=()
  for group in "$@"; do
    for name in ${PACKAGES[$group]}; do wanted+=("$name"); done
  done
  comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) \
    <(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null |
      awk '$2 == "installed" {print $1}' | sort -u)
}

# as_root CMD...: runs it as root, through sudo for everyone else.
as_root() {
  local ask=(-n)
  if ((EUID == 0)); then "$@"; return; fi
  have sudo || die "installing packages needs root; run scripts/setup as root, or install sudo"
  if [[ -t 0 ]]; then ask=(); fi
  sudo "${ask[@]}" true || die "sudo does not let this user install packages; run scripts/setup as root once, then start again"
  sudo "${ask[@]}" "$@"
}

apt() {
  local proxies=() name
  for name in http_proxy https_proxy no_proxy; do
    if [[ -n ${!name:-} ]]; then proxies+=("$name=${!name}"); fi
  done
  as_root env DEBIAN_FRONTEND=noninteractive "${proxies[@]}" apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

# install_packages GROUP...: installs what is missing and removes nothing; without a missing package it does not even start apt.
install_packages() {
  local missing plan removed
  have dpkg-query || die "this is not a Debian system: install the packages that scripts/packages lists by hand, then run cmake --workflow --preset dev"
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then say "packages: all present"; return; fi
  say "packages: installing ${missing[*]}"
  apt update -o Acquire::Retries=3 || say "packages: the lists could not be brought up to date; trying with those at hand"
  plan=$(LC_ALL=C apt-get -s --no-install-recommends install "${missing[@]}" 2>&1) ||
    die "apt cannot install ${missing[*]}: $(grep -m1 -E '^E: Unable to locate|Depends:|Conflicts:|^E:' <<<"$plan"); enable bookworm's main archive in /etc/apt/sources.list, or release the package that is held"
  removed=$(awk '/^Remv /{printf "%s ", $2}' <<<"$plan")
  [[ -z $removed ]] ||
    die "installing ${missing[*]} would remove ${removed% }, and nothing of yours is removed here; remove it yourself if you can spare it, or run in a container of Debian 12"
  apt install --no-remove -y --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}" ||
    die "apt could not install ${missing[*]}; read its message above, repair with 'apt-get -f install', then start again"
}

# --- Python ---

# python_env NAME REQUIREMENTS [PIP OPTION...]: prints the interpreter of the environment of that file, made on
# first use in the user's cache. Debian's own python3 makes it: one of pyenv sees none of Debian's modules.
python_env() {
  local name=$1 requirements=$2 key dir
  shift 2
  key=$({ /usr/bin/python3 --version; cat "$requirements"; } | sha256sum | cut -c1-12)
  dir=$cache/env/$name-$key
  mkdir -p "$cache/env"
  (
    flock 9
    if [[ ! -e $dir/complete ]]; then
      say "python: making $dir" >&2
      rm -rf -- "$dir"
      /usr/bin/python3 -m venv "$dir" >&2 ||
        die "python3 cannot make an environment in $dir; install python3-venv (scripts/setup build)"
      "$dir/bin/python" -m pip install -q --disable-pip-version-check --only-binary :all: "$@" -r "$requirements" >&2 ||
        die "pip could not install ${requirements#"$root/"}; check the network and pip's index, then start again"
      touch "$dir/complete"
    fi
  ) 9>"$cache/env/$name.lock" || exit 1
  printf '%s\n' "$dir/bin/python"
}

# --- builds ---

# build PRESET [TARGET...]: configures and builds, everything where no target is named.
: "${CCACHE_MAXSIZE:=20G}" # Room for every preset at once; they would drive each other out.
export CCACHE_MAXSIZE
# A checkout in another folder finds what this one compiled.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=true
limiter=() # scripts/test puts a time limit here
build() {
  local preset=$1 targets=()
  shift
  if (($#)); then targets=(--target "$@"); fi
  (
    cd "$root" &&
      "${limiter[@]}" cmake --preset "$preset" --log-level=WARNING &&
      "${limiter[@]}" cmake --build --preset "$preset" "${targets[@]}"
  )
}

# python_package PYTHON: builds the source distribution, a wheel out of that, and prints the folder that
# the wheel was unpacked to: what a user would have after `pip install`.
python_package() {
  local python=$1 dist=$root/build/dist site=$root/build/site sources
  (
    cd "$root"
    rm -rf -- "$dist" "$site"
    say "python: building the distributions" >&2
    "$python" -m build --sdist --no-isolation --outdir "$dist" . >"$root/build/sdist.log" 2>&1 ||
      die "the source distribution could not be built; see build/sdist.log"
    # Unpacked where the compiler cache knows its files by the same relative names as ours.
    sources=$root/build/sources
    rm -rf -- "$sources"
    mkdir -p "$sources"
    tar xf "$dist"/*.tar.gz -C "$sources" --strip-components 1
    CCACHE_BASEDIR=$sources "${limiter[@]}" "$python" -m build --wheel --no-isolation --outdir "$dist" \
      -Cbuild-dir="$sources/build/release" "$sources" >"$root/build/wheel.log" 2>&1 ||
      die "the wheel could not be built; see build/wheel.log"
    "$python" -m pip install -q --no-deps --target "$site" "$dist"/*.whl
  ) >&2 || exit 1
  printf '%s\n' "$site"
}
