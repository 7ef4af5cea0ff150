# Runs tools in a network that has the proxy and nothing else, as deploy/agents does: this shell is the side of the proxy,
# which crawlers reach at 10.9.0.1, and a site is at 10.8.0.1. Run it as root in a network namespace of its own, in an
# empty folder; $1 is the folder deploy. It exits with 77 if the system lacks what it needs.
set -eu
deploy=$1
trap 'kill $(jobs -p)' EXIT

ip link set lo up
ip address add 10.8.0.1/32 dev lo
unshare -nm --propagation private sleep 120 &
agent=$!
until [ "$(readlink /proc/$agent/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
ip link add agents type veth peer name eth0 netns $agent || exit 77
ip address add 10.9.0.1/24 dev agents
ip link set agents up
printf '127.0.0.1 localhost\n10.9.0.1 robotsproxy\n' >hosts
inside() { nsenter -t $agent -n -m "$@"; }
inside sh -ec "ip link set lo up; ip address add 10.9.0.2/24 dev eth0; ip link set eth0 up; mount --bind '$PWD/hosts' /etc/hosts" || exit 77

mkdir -p site/private home bin
install "$(command -v robotsproxy)" bin # the user of the agent cannot read it elsewhere
PATH=$PWD/bin:$PATH
chmod 755 .
chown 1000 home
printf 'User-agent: *\nDisallow: /private/\n' >site/robots.txt
echo page >site/page.html
echo secret >site/private/x.html
python3 -m http.server 80 --bind 10.8.0.1 --directory site >/dev/null 2>>site.log &

cat "$deploy/config.yaml" - >config.yaml <<EOF
egress:
  allow_addresses: [10.8.0.1]
  resolve: {site.example: 10.8.0.1}
EOF
robotsproxy serve --config config.yaml --data-dir data 2>proxy.log &
until robotsproxy healthcheck --config config.yaml 2>/dev/null && curl -s -o /dev/null --noproxy '*' http://10.8.0.1/; do sleep 0.1; done
>site.log

# agent COMMAND... runs a command as the container of deploy/agents does.
agent() { inside setpriv --reuid 1000 --regid 1000 --clear-groups env HOME="$PWD/home" sh "$deploy/agents/with-proxy" "$@" 2>>tools.log; }

page=http://site.example/page.html
private=http://site.example/private/x.html
read='import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())'
agent curl -sS $page
agent wget -q -O - $page
agent python3 -c "$read" $page
agent curl -sS -A AgentCurl -o /dev/null -w 'curl: %{http_code}\n' $private
agent wget -q -U AgentWget -O - $private || echo "wget: $?"
agent python3 -c "$read" $private 2>python.log || echo "python: $?"
agent curl -sS --noproxy '*' http://10.8.0.1/private/x.html || echo "past the proxy: $?"
agent curl -sS --noproxy '*' -o /dev/null -w 'records: %{http_code}\n' http://10.9.0.1:3129/api/v1/audit/records
grep -o '"GET [^"]*"' site.log
