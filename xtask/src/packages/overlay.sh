# Installs packages on top of this machine, runs their scripts, compiles an example with the library, and removes them.
# Everything happens in a mount namespace, over a file system in memory, so nothing is left on the machine. $1: an empty
# folder, $2: deb or rpm, $3: the example, then the packages.
set -eu
mount -t tmpfs -o size=2g tmpfs "$1"
mkdir "$1/changes" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" "$1/root"
root=$1/root
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
mount --bind /dev "$root/dev"
kind=$2
mkdir "$root/packages"
cp "$3" "$root/first.c"
shift 3
cp "$@" "$root/packages"
echo mounted
run() { chroot "$root" "$@"; }
case $kind in
deb)
    run sh -c 'dpkg --install /packages/*'
    config=/etc/quorate/quorate.toml
    ;;
rpm)
    # Its dependencies are present but not in rpm's database, since this machine may use dpkg.
    run sh -c 'rpm --install --nodeps --nosignature /packages/*'
    run rpm --verify --nodeps --nosignature quorate libquorate libquorate-devel
    ;;
esac
run getent passwd quorate >/dev/null
test "$(run stat --format '%U %a' /var/lib/quorate)" = "quorate 750"
run quorate --version
if command -v cc >/dev/null && command -v pkg-config >/dev/null; then
    # /usr/lib64 is a folder of rpm's distributions.
    run sh -c 'export PKG_CONFIG_PATH=/usr/lib64/pkgconfig LD_LIBRARY_PATH=/usr/lib64
        ip link set lo up && cc -o /first /first.c $(pkg-config --cflags --libs quorate) && /first /first-data'
    echo "compiled"
fi
if command -v systemd-analyze >/dev/null; then
    run systemd-analyze verify /usr/lib/systemd/system/quorate.service
    mkdir -p "$root/etc/systemd/system/quorate.service.d"
    cp "$root/usr/share/doc/quorate/examples/devices.conf" "$root/etc/systemd/system/quorate.service.d/"
    run systemd-analyze verify /usr/lib/systemd/system/quorate.service
    echo "verified by systemd-analyze"
fi
run mkdir -p /var/lib/quorate/node
case $kind in
deb)
    # An operator's change survives an upgrade.
    echo "# changed" >>"$root$config"
    run sh -c "dpkg --install /packages/quorate_*"
    test "$(tail -n 1 "$root$config")" = "# changed"
    run dpkg --remove quorate libquorate-dev libquorate0
    test -f "$root$config"
    run dpkg --purge quorate
    ! test -e "$root$config"
    ;;
rpm)
    run rpm --erase quorate libquorate libquorate-devel
    ;;
esac
! test -e "$root/usr/bin/quorate"
test -d "$root/var/lib/quorate/node"
