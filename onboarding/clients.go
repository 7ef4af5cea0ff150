package onboarding

import (
	"net"
	"strings"
)

// Client is a program, and how to send its requests through the proxy.
type Client struct {
	ID    string // in the URL of its part of the page
	Name  string
	Steps []Step
}

// Step is something to do, and the lines to paste for it.
type Step struct{ Text, Lines string }

// Clients returns how to set up clients of a proxy with the URL scheme://address. The lines contain no folder of the
// proxy's machine, and expect the CA in the file robotsproxy-ca.pem.
func Clients(scheme, address string) []Client {
	proxy := scheme + "://" + address
	host, port, _ := net.SplitHostPort(address)
	lines := func(all ...string) string { return strings.Join(all, "\n") }
	command := func(parts ...string) string { return strings.Join(parts, " \\\n  ") }
	getCA := Step{"Get the CA certificate, which HTTPS needs.", command("curl -fsSo robotsproxy-ca.pem", proxy+"/ca.pem")}
	setProxy := Step{"Set the proxy. Most programs read these variables.", lines("export http_proxy="+proxy, "export https_proxy="+proxy)}
	const nameCA = "export SSL_CERT_FILE=$PWD/robotsproxy-ca.pem"
	const forRequests, forNode = "export REQUESTS_CA_BUNDLE=$SSL_CERT_FILE", "export NODE_EXTRA_CA_CERTS=$SSL_CERT_FILE"
	return []Client{
		{"any", "Any program", []Step{
			getCA, setProxy,
			{"Let programs trust the CA.", lines(nameCA, forRequests, forNode)},
			{"If the proxy asks for a password, write it into both URLs.", scheme + "://USER:PASSWORD@" + address},
		}},
		{"curl", "curl", []Step{
			getCA, {"Name both for each request.", command("curl --proxy "+proxy, "--cacert robotsproxy-ca.pem", "https://a.example/")},
		}},
		{"wget", "wget", []Step{
			getCA,
			{"Name both for each crawl.", command("wget -e http_proxy="+address, "-e https_proxy="+address,
				"--ca-certificate=robotsproxy-ca.pem", "https://a.example/")},
		}},
		{"python", "Python", []Step{
			getCA, setProxy, {"Let requests, urllib and httpx trust the CA.", lines(nameCA, forRequests, "python3 crawl.py")},
		}},
		{"scrapy", "Scrapy", []Step{
			setProxy, {"Scrapy does not check certificates, so it needs no CA.", "scrapy crawl news"},
		}},
		{"node", "Node", []Step{
			getCA, setProxy,
			{
				"Node 24 and newer read them. In older versions, fetch ignores the proxy.",
				lines("export NODE_USE_ENV_PROXY=1", "export NODE_EXTRA_CA_CERTS=robotsproxy-ca.pem", "node crawl.js"),
			},
		}},
		{"go", "Go", []Step{getCA, setProxy, {"Name the CA for the program.", "SSL_CERT_FILE=robotsproxy-ca.pem ./crawl"}}},
		{"java", "Java", []Step{
			getCA,
			{"Make a trust store of it.", command("keytool -importcert -noprompt", "-alias robotsproxy",
				"-file robotsproxy-ca.pem", "-keystore robotsproxy.p12", "-storepass changeit")},
			{"Name the proxy and the trust store.", command("java -Dhttp.proxyHost="+host, "-Dhttp.proxyPort="+port,
				"-Dhttps.proxyHost="+host, "-Dhttps.proxyPort="+port, "-Djavax.net.ssl.trustStore=robotsproxy.p12",
				"-Djavax.net.ssl.trustStorePassword=changeit", "Crawl")},
		}},
		{"browser", "Browsers", []Step{
			{"Firefox, Chromium and others: set the PAC file as the automatic proxy configuration.", proxy + "/proxy.pac"},
			{"Or start Chromium with the proxy.", command("chromium", "--proxy-server="+proxy)},
			{"For HTTPS, import " + proxy + "/ca.pem in the settings of the browser, as an authority for web sites. " +
				"On the machine of the proxy a command does that.", "robotsproxy ca install"},
		}},
	}
}
