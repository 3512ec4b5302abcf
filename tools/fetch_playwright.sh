#!/bin/sh
# Installs playwright-core, which drives Chromium in the page's tests and benchmark:  tools/fetch_playwright.sh [BUILD]
set -eu
version=1.65.0
build=${1:-build}
folder=$build/playwright
[ "$(cat "$folder/version" 2>/dev/null || true)" = "$version" ] && exit 0
command -v npm >/dev/null || { echo "fetch_playwright.sh: npm is needed to fetch playwright-core" >&2; exit 1; }
mkdir -p "$folder"
echo '{"private": true}' >"$folder/package.json"
(cd "$folder" && PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm install --silent --no-audit --no-fund "playwright-core@$version")
printf '%s' "$version" >"$folder/version"
