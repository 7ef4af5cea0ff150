package onboarding

import "net"

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
	getCA := Step{"Get the CA certificate, which HTTPS needs.", "curl -fsSo robotsproxy-ca.pem " + proxy + "/ca.pem"}
	setProxy := Step{"Set the proxy. Most programs read these variables.", "export http_proxy=" + proxy + " https_proxy=" + proxy}
	one := func(id, name, text, lines string) Client {
		return Client{id, name, []Step{getCA, setProxy, {text, lines}}}
	}
	return []Client{
		{"any", "Any program", []Step{
			getCA, setProxy,
			{"Let programs trust the CA.", "export SSL_CERT_FILE=$PWD/robotsproxy-ca.pem REQUESTS_CA_BUNDLE=$PWD/robotsproxy-ca.pem NODE_EXTRA_CA_CERTS=$PWD/robotsproxy-ca.pem"},
			{"If the proxy asks for a password, write it into the URL.", "export https_proxy=" + scheme + "://USER:PASSWORD@" + address},
		}},
		{"curl", "curl", []Step{getCA, {"", "curl --proxy " + proxy + " --cacert robotsproxy-ca.pem https://a.example/"}}},
		{"wget", "wget", []Step{getCA, {"", "wget -e http_proxy=" + address + " -e https_proxy=" + address + " --ca-certificate=robotsproxy-ca.pem https://a.example/"}}},
		one("python", "Python", "For requests, urllib and httpx.", "REQUESTS_CA_BUNDLE=robotsproxy-ca.pem SSL_CERT_FILE=robotsproxy-ca.pem python3 crawl.py"),
		{"scrapy", "Scrapy", []Step{{"Scrapy does not check certificates.", "http_proxy=" + proxy + " https_proxy=" + proxy + " scrapy crawl news"}}},
		one("node", "Node", "Node 24 and newer. Older versions of fetch ignore the proxy.", "NODE_USE_ENV_PROXY=1 NODE_EXTRA_CA_CERTS=robotsproxy-ca.pem node crawl.js"),
		one("go", "Go", "", "SSL_CERT_FILE=robotsproxy-ca.pem ./crawl"),
		{"java", "Java", []Step{
			getCA,
			{"Make a trust store.", "keytool -importcert -noprompt -alias robotsproxy -file robotsproxy-ca.pem -keystore robotsproxy.p12 -storepass changeit"},
			{"", "java -Dhttp.proxyHost=" + host + " -Dhttp.proxyPort=" + port + " -Dhttps.proxyHost=" + host + " -Dhttps.proxyPort=" + port +
				" -Djavax.net.ssl.trustStore=robotsproxy.p12 -Djavax.net.ssl.trustStorePassword=changeit Crawl"},
		}},
		{"browser", "Browsers", []Step{
			{"On the machine of the proxy, let browsers trust the CA. On others, import /ca.pem in the settings of the browser, as an authority for web sites.", "robotsproxy ca install"},
			{"Start Chromium with the proxy.", "chromium --proxy-server=" + proxy},
			{"Or set the PAC file as the automatic proxy configuration.", proxy + "/proxy.pac"},
		}},
	}
}
