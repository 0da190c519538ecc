# Runs containers of the unpacked image $1 on a bridge of their own, then the script $2/test next to them. Each folder in
# $2/containers is a container of that name: `mounts` has lines with a folder and its path inside, `run` is the command.
set -eu
exec 2>&1
image=$1
cd "$2"
mount -t tmpfs tmpfs /run
ip link set lo up
ip link add br0 type bridge
ip link set br0 up
ip addr add 10.213.78.254/24 dev br0
echo "127.0.0.1 localhost" >hosts
mount --bind hosts /etc/hosts
number=0
for name in $(ls containers); do
    number=$((number + 1))
    ip netns add "$name"
    ip -n "$name" link set lo up
    ip link add "v$number" type veth peer name eth0 netns "$name"
    ip link set "v$number" master br0 up
    ip -n "$name" addr add "10.213.78.$number/24" dev eth0
    ip -n "$name" link set eth0 up
    echo "10.213.78.$number $name $name.quorate" >>hosts
done
echo connected
for name in $(ls containers); do
    nsenter --net="/run/netns/$name" unshare --mount --uts sh -euc '
        echo "$1" >/proc/sys/kernel/hostname
        root=/run/$1
        mkdir "$root"
        mount --bind "$2" "$root"
        mkdir -p "$root/proc" "$root/dev"
        touch "$root/etc/hosts"
        mount --bind hosts "$root/etc/hosts"
        mount --rbind /dev "$root/dev"
        mount -t proc proc "$root/proc"
        while read -r from to; do
            mkdir -p "$root$to"
            mount --bind "$from" "$root$to"
        done <"containers/$1/mounts"
        mount -o remount,bind,ro "$root"
        . "containers/$1/run"' sh "$name" "$image" >"containers/$name/log" 2>&1 &
done
if ! timeout 60 sh -eux test >said 2>&1; then
    tail -n 20 said containers/*/log
    exit 1
fi
for job in $(jobs -p); do
    kill "$job"
    wait "$job"
done
