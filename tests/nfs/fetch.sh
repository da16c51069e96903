#!/bin/sh
# Fetches the packages of the guest from the Debian mirror this machine knows and unpacks them below the directory
# named. Nothing is installed, so no service starts.
set -eu
place=$1
packages="user-mode-linux nfs-kernel-server nfs-common libnfsidmap1 libevent-core-2.1-7 libtirpc3 libwrap0 busybox-static"

missing=
for tool in apt-get dpkg mkfs.ext4 ip nsenter unshare zstd; do
  command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
if [ -n "$missing" ]; then
  echo "make test-nfs: missing tools:$missing" >&2
  echo "It needs Debian on x86-64 with: apt-get install e2fsprogs iproute2 util-linux zstd" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ] || [ "$(uname -sm)" != "Linux x86_64" ]; then
  echo "make test-nfs: it needs root on Linux x86-64" >&2
  exit 1
fi
[ ! -e "$place/ready" ] || exit 0

rm -rf "$place"
mkdir -p "$place/debs" "$place/root"
cd "$place/debs"
for package in $packages; do
  apt-get download -qq -o APT::Sandbox::User=root "$package" || {
    echo "make test-nfs: $package cannot be fetched; after apt-get update it may be" >&2
    exit 1
  }
done
for file in *.deb; do
  dpkg -x "$file" ../root
done
touch ../ready
