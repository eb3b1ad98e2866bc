#!/usr/bin/env bash
# The browser tests run in Chromium.  Install Debian's where it is missing and this user may; else say what to install.
set -u
for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome; do
  if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
if command -v apt-get >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ]; then
    sudo=""
  elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    sudo="sudo -n"
  else
    sudo="none"
  fi
  if [ "$sudo" != none ]; then
    echo "Installing Chromium for the browser tests …"
    $sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends chromium >/dev/null
    command -v chromium >/dev/null 2>&1 && exit 0
  fi
fi
echo "The browser tests need Chromium: install it (Debian: apt install chromium), or set CHROMIUM to its path." >&2
exit 1
