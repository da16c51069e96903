#!/bin/sh
# The first process of the guest. Its root is the host's, read-only; what it may write is in memory, below $OUT
# (a directory of the host), and on the disk if it has one. The kernel hands NAME=VALUE of its command line over.
set -eu
export PATH="$CHECKOUT/.venv/bin:$PACKAGES/usr/sbin:$PACKAGES/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export LD_LIBRARY_PATH="$PACKAGES/lib/x86_64-linux-gnu:$PACKAGES/usr/lib/x86_64-linux-gnu"
export HOME=/run/home TMPDIR=/run/tmp LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
busybox="$PACKAGES/bin/busybox"

mount -n -t proc proc /proc
mount -n -t sysfs sysfs /sys
for place in /run /mnt /var; do mount -n -t tmpfs tmpfs "$place"; done
mkdir -p /dev/shm /run/home /run/tmp /run/netns /var/lib/nfs/v4recovery /var/lib/nfs/rpc_pipefs /mnt/out /mnt/disk
mount -n -t tmpfs tmpfs /dev/shm
mount -n -t hostfs none /mnt/out -o "$OUT"
ip link set lo up

off() {
  sync
  echo o >/proc/sysrq-trigger
  sleep 60
}

modules() {
  for name in "$@"; do
    "$busybox" insmod "$("$busybox" find "$PACKAGES/usr/lib/uml/modules" -name "$name.ko")"
  done
}

# One export and two clients, each in a network of its own, as two machines with EFS's mount options would be.
network() {
  modules sunrpc grace lockd netfs fscache nfs dns_resolver nfsv4 nfs_acl oid_registry auth_rpcgss nfsd veth
  mkdir -p /mnt/served/data /mnt/c1 /mnt/c2
  mount -n -t tmpfs tmpfs /mnt/served
  mkdir -m 755 /mnt/served/data
  chown 1000:1000 /mnt/served/data
  touch /var/lib/nfs/etab /var/lib/nfs/rmtab
  for i in 1 2; do
    ip netns add "c$i"
    ip link add "s$i" type veth peer name "e$i"
    ip link set "e$i" netns "c$i"
    ip addr add "10.77.$i.1/24" dev "s$i"
    ip link set "s$i" up
    ip -n "c$i" addr add "10.77.$i.2/24" dev "e$i"
    ip -n "c$i" link set "e$i" up
    ip -n "c$i" link set lo up
    # With one identifier both would be one client to the server, and locks be granted twice.
    nsenter --net="/run/netns/c$i" unshare -m sh -c \
      "mount -n -t sysfs s /sys && echo client$i >/sys/fs/nfs/net/nfs_client/identifier"
  done
  # EFS hands out no delegations.
  echo 0 >/proc/sys/fs/leases-enable
  mount -n -t nfsd nfsd /proc/fs/nfsd
  exportfs -i -o rw,sync,fsid=0,insecure,no_subtree_check,all_squash,anonuid=1000,anongid=1000 \
    10.77.0.0/16:/mnt/served/data
  rpc.mountd --no-nfs-version 3 -N 2 --no-udp
  echo 1048576 >/proc/fs/nfsd/max_block_size
  rpc.nfsd -N 3 -V 4 -V 4.1 -V 4.2 -U 4
  echo Y >/proc/fs/nfsd/v4_end_grace
  for i in 1 2; do
    nsenter --net="/run/netns/c$i" mount.nfs4 "10.77.$i.1:/" "/mnt/c$i" -o \
      vers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport
  done
}

trap off EXIT
cd "$CHECKOUT"
case "$ROLE" in
  clients)
    # Whatever fails here is said on the console, and the guest ends without a result.
    network || off
    export TALLYSTICK_TEST_NFS=1
    python -m pytest -p no:cacheprovider -n 0 tests/nfs/inside --junitxml=/mnt/out/nfs.xml -o timeout=300 || true
    ;;
  disk)
    mount -n -t ext4 /dev/ubda /mnt/disk
    python -m tests.nfs.cycle /mnt/disk /mnt/out || true
    umount -n /mnt/disk || true
    ;;
esac
off
