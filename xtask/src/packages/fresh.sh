# Makes a root that has what every installation of Debian has, and apt: from the packages of this machine, without a network.
# Runs a script there, with a network that is loopback alone, and without anything else of this machine.
# $1: an empty folder, $2: a folder that becomes the home, with the script `run`.
set -eu
exec 2>&1
root=$1
# Installed packages that none is without, and what they need.
wanted=$(dpkg-query --show --showformat='${Essential} ${Priority} ${Package}\n' | awk '$1 == "yes" || $2 == "required" { print $NF }')
packages=$(apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
    --no-enhances apt $wanted | grep '^[a-z0-9]' | sort -u)
# Of those that stand in for one another, the ones that are installed.
packages=$(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' $packages 2>/dev/null | awk '$1 == "installed" { print $2 }')
mkdir "$root/usr"
for folder in bin sbin lib lib64; do
    # Where they are folders of their own, they stay that.
    if test -L "/$folder"; then
        mkdir "$root/usr/$folder"
        ln -s "usr/$folder" "$root/$folder"
    fi
done
dpkg --listfiles $packages | grep '^/.' | grep -v -e '^/usr/share/doc/' -e '^/usr/share/man/' -e '^/usr/share/locale/' |
    tar --create --directory / --no-recursion --ignore-failed-read --files-from - 2>/dev/null |
    tar --extract --directory "$root" --keep-directory-symlink
# What dpkg knows of them, and what their scripts have made.
books=$root/var/lib/dpkg
mkdir -p "$books/info" "$books/updates" "$root/proc" "$root/dev" "$root/home/reader"
echo "$packages" | awk 'NR == FNR { wanted[$1]; next } $2 in wanted { printf "%s\n\n", $0 }' - RS= FS='[: \n]+' /var/lib/dpkg/status \
    >"$books/status"
for package in $packages; do
    cp /var/lib/dpkg/info/"$package".* /var/lib/dpkg/info/"$package":* "$books/info/" 2>/dev/null || true
done
cp "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
cp "$root/usr/share/base-passwd/group.master" "$root/etc/group"
cp "$2"/* "$root/home/reader/"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
ip link set lo up
chroot "$root" /sbin/ldconfig
echo "made of $(echo "$packages" | wc -l) packages"
exec chroot "$root" /usr/bin/env -i HOME=/home/reader PATH=/usr/bin:/bin /bin/sh -eux /home/reader/run
