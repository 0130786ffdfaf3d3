#!/usr/bin/env bash
# Brings the programs that tests compare the log with: kcat, strace and Apache Kafka's jars.
# What is there already is left alone; what cannot be had is named in one line.
set -euo pipefail
cd "$(dirname "$0")"

pom=kafka/pom.xml
version=$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' "$pom")
jars=${XDG_CACHE_HOME:-$HOME/.cache}/penstock/kafka-$version

have() { command -v "$1" >/dev/null; }
# The pom is kept beside the jars that it brought: when it has changed, they are fetched again.
jars_are_there() { cmp -s "$pom" "$jars/pom.xml"; }

packages=()
have kcat || packages+=(kcat)
have strace || packages+=(strace)
have java || packages+=(default-jre-headless)
have mvn || jars_are_there || packages+=(maven)
./debian.sh "${packages[@]}"

jars_are_there && exit 0
if ! have mvn; then
    echo "skipped: Apache Kafka $version (there is no mvn to fetch its jars with)"
    [[ "${CI:-}" != true ]]
    exit
fi
mkdir -p "$(dirname "$jars")"
fresh=$(mktemp -d "$jars.XXXXXX")
trap 'rm -rf "$fresh"' EXIT
if ! mvn -q -B -f "$pom" dependency:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$fresh"; then
    echo "skipped: Apache Kafka $version (its jars cannot be fetched)"
    [[ "${CI:-}" != true ]]
    exit
fi
cp "$pom" "$fresh/pom.xml"
chmod 755 "$fresh"
rm -rf "$jars"
mv "$fresh" "$jars"
