# Installs a package on top of this machine, runs its scripts, and removes it. Everything happens in a mount namespace,
# over a file system in memory, so nothing is left on the machine. $1: an empty folder, $2: the package, $3: deb or rpm.
set -eu
mount -t tmpfs -o size=2g tmpfs "$1"
mkdir "$1/changes" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" "$1/root"
root=$1/root
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
mount --bind /dev "$root/dev"
cp "$2" "$root/root/package"
echo mounted
run() { chroot "$root" "$@"; }
case $3 in
deb)
    run dpkg --install /root/package
    config=/etc/quorate/quorate.toml
    ;;
rpm)
    # Its dependencies are present but not in rpm's database, since this machine may use dpkg.
    run rpm --install --nodeps --nosignature /root/package
    run rpm --verify --nodeps --nosignature quorate
    ;;
esac
run getent passwd quorate >/dev/null
run quorate --version
if command -v systemd-analyze >/dev/null; then
    run systemd-analyze verify /usr/lib/systemd/system/quorate.service
    mkdir -p "$root/etc/systemd/system/quorate.service.d"
    cp "$root/usr/share/doc/quorate/examples/devices.conf" "$root/etc/systemd/system/quorate.service.d/"
    run systemd-analyze verify /usr/lib/systemd/system/quorate.service
    echo "verified by systemd-analyze"
fi
run mkdir -p /var/lib/quorate/node
case $3 in
deb)
    # An operator's change survives an upgrade.
    echo "# changed" >>"$root$config"
    run dpkg --install /root/package
    test "$(tail -n 1 "$root$config")" = "# changed"
    run dpkg --remove quorate
    test -f "$root$config"
    run dpkg --purge quorate
    ! test -e "$root$config"
    ;;
rpm)
    run rpm --erase quorate
    ;;
esac
! test -e "$root/usr/bin/quorate"
test -d "$root/var/lib/quorate/node"
