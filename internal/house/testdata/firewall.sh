# Prints which connections the rules of deploy/nftables let pass. This shell is the router in front of the crawlers'
# network, which it has as 10.0.1.0/24; the proxy is 10.0.2.5, and another server 10.0.2.9. Run it in a network namespace of
# its own, in the folder deploy/nftables. It exits with 77 if the system lacks what it needs.
set -eu

unshare -n sleep 60 &
far=$!
unshare -n sleep 60 &
crawlers=$!
trap 'kill $(jobs -p)' EXIT
until [ "$(readlink /proc/$far/ns/net)" != "$(readlink /proc/$$/ns/net)" ] &&
	[ "$(readlink /proc/$crawlers/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done

nft list ruleset || exit 77
ip link add far type veth peer name eth0 netns $far || exit 77
ip link add crawlers type veth peer name eth0 netns $crawlers
ip link set lo up
ip address add 10.0.2.1/24 dev far
ip address add 10.0.1.1/24 dev crawlers
ip link set far up
ip link set crawlers up
nsenter -t $far -n sh -ec 'ip address add 10.0.2.5/24 dev eth0; ip address add 10.0.2.9/24 dev eth0
	ip link set eth0 up; ip route add default via 10.0.2.1'
nsenter -t $crawlers -n sh -ec 'ip address add 10.0.1.2/24 dev eth0; ip link set eth0 up; ip route add default via 10.0.1.1'
echo 1 >/proc/sys/net/ipv4/ip_forward || exit 77

serve() { "$@" >/dev/null 2>&1 & }
serve nsenter -t $far -n python3 -m http.server 3128
serve nsenter -t $far -n python3 -m http.server 80
serve python3 -m http.server 3128 --bind 127.0.0.1

# check WHO URL COMMAND... prints whether COMMAND, a prefix of curl, reaches URL.
check() {
	who=$1 url=$2
	shift 2
	if "$@" curl -s -o /dev/null --noproxy '*' -m 5 "$url"; then echo "$who reaches $url"; else echo "$who does not reach $url"; fi
}
network() { check "a crawler of the network" "$1" nsenter -t $crawlers -n; }
user() { check "user $1" "$2" setpriv --reuid "$1" --clear-groups; }

for url in http://10.0.2.5:3128/ http://10.0.2.9/ http://127.0.0.1:3128/; do # until all servers listen
	until curl -s -o /dev/null --noproxy '*' "$url"; do sleep 0.05; done
done
network http://10.0.2.9/
nft -f network.nft
nft -f network.nft # again, as after a change
network http://10.0.2.5:3128/
network http://10.0.2.5/
network http://10.0.2.9/
user 1500 http://10.0.2.9/
nft -f user.nft
nft -f user.nft
user 1500 http://10.0.2.9/
user 1500 http://127.0.0.1:3128/
user 1501 http://10.0.2.9/
