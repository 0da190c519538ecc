# Builds a root directory with the packages that every Debian installation has, and apt, from this machine's packages
# and without a network. Runs a script there, with a loopback network only and isolated from the rest of this machine.
# $1: an empty folder, $2: a folder that becomes the home, with the script `run`.
set -eu
exec 2>&1
root=$1
# Installed packages that every system has, and their dependencies. Not usrmerge, which lintian
# brings: usr-is-merged takes its place.
wanted=$(dpkg-query --show --showformat='${Essential} ${Priority} ${Package}\n' | awk '$1 == "yes" || $2 == "required" { print $NF }')
packages=$(apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
    --no-enhances apt $wanted | grep '^[a-z0-9]' | sort -u |
    grep -vx -e usrmerge -e 'lib\(file-find-rule\|number-compare\|text-glob\)-perl')
# Of alternatives, those that are installed.
packages=$(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' $packages 2>/dev/null | awk '$1 == "installed" { print $2 }')
mkdir "$root/usr"
for folder in bin sbin lib lib64; do
    # Folders that are not symlinks here are created as folders.
    if test -L "/$folder"; then
        mkdir "$root/usr/$folder"
        ln -s "usr/$folder" "$root/$folder"
    fi
done
dpkg --listfiles $packages | grep '^/.' | grep -v -e '^/usr/share/doc/' -e '^/usr/share/man/' -e '^/usr/share/locale/' |
    tar --create --directory / --no-recursion --ignore-failed-read --files-from - 2>/dev/null |
    tar --extract --directory "$root" --keep-directory-symlink
# dpkg's database for these packages, and the files that their scripts created.
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
