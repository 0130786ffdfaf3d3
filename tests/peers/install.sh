#!/usr/bin/env bash
# Brings the programs that tests compare penstock with: kcat, strace, Apache Kafka's jars, those of
# Spark's connector to it, and Flink. What is there already is left alone; what cannot be had is
# named in one line.
set -euo pipefail
cd "$(dirname "$0")"

have() { command -v "$1" >/dev/null; }
version() { sed -n "s:.*<$1.version>\(.*\)</$1.version>.*:\1:p" "$1/pom.xml"; }
jars() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/penstock/$1-$(version "$1")"; }
# The pom is kept beside the jars that it brought: when it has changed, they are fetched again.
jars_are_there() { cmp -s "$1/pom.xml" "$(jars "$1")/pom.xml"; }

skipped() {
    echo "skipped: $1 $(version "$1") ($2)"
    [[ "${CI:-}" != true ]]
}

fetch() {
    local name=$1 target fresh
    jars_are_there "$name" && return
    if ! have mvn; then
        skipped "$name" "there is no mvn to fetch them with"
        return
    fi
    target=$(jars "$name")
    mkdir -p "$(dirname "$target")"
    fresh=$(mktemp -d "$target.XXXXXX")
    if mvn -q -B -f "$name/pom.xml" dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$fresh"; then
        cp "$name/pom.xml" "$fresh/pom.xml"
        chmod 755 "$fresh"
        rm -rf "$target"
        mv "$fresh" "$target"
    else
        rm -rf "$fresh"
        skipped "$name" "they cannot be fetched"
    fi
}

# What Flink asks for clashes with what penstock does: it has a Python of its own, of the same kind.
bring_flink() {
    local bin=../../.venv/bin target
    target=$(jars flink)
    jars_are_there flink || return 0
    [[ -e "$target/python/installed" ]] && return
    if "$bin/uv" venv -q --clear --python "$bin/python" "$target/python" &&
        "$bin/uv" pip install -q --python "$target/python" "apache-flink==$(version flink)"; then
        touch "$target/python/installed"
    else
        skipped flink "it cannot be installed"
    fi
}

packages=()
have kcat || packages+=(kcat)
have strace || packages+=(strace)
have java || packages+=(default-jre-headless)
have mvn || { jars_are_there kafka && jars_are_there spark-kafka && jars_are_there flink; } ||
    packages+=(maven)
./debian.sh "${packages[@]}"

fetch kafka
fetch spark-kafka
fetch flink
bring_flink
