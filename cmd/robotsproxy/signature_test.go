package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/sign"
)

// newKeys makes keys with robotsproxy key new, and returns their id.
func newKeys(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command(binaryPath, "key", "new", "--data-dir", filepath.Dir(path), "--key-file", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// publicKey returns the first key of robotsproxy key directory.
func publicKey(t *testing.T, path string) json.RawMessage {
	t.Helper()
	out, err := exec.Command(binaryPath, "key", "directory", "--data-dir", filepath.Dir(path), "--key-file", path,
		"--agent", "https://crawler.example.org").Output()
	if err != nil {
		t.Fatal(err)
	}
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(out, &set); err != nil || len(set.Keys) == 0 {
		t.Fatalf("%s: %v", out, err)
	}
	return set.Keys[0]
}

// verified returns what the verifiers of npm say of requests.
func verified(t *testing.T, jwk json.RawMessage, requests []robotstest.Request) []string {
	t.Helper()
	program("npm")(t)
	dir := t.TempDir()
	for _, name := range []string{"package.json", "verify.mjs"} {
		text, err := os.ReadFile(filepath.Join("testdata", "signatures", name))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, dir, name, string(text))
	}
	install := exec.Command("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		missing(t, fmt.Sprintf("web-bot-auth of npm (%s)", out))
	}
	type sent struct {
		Method  string            `json:"method"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers"`
	}
	var all []sent
	for _, r := range requests {
		s := sent{r.Method, "http://" + r.Host + r.Target, map[string]string{}}
		if r.TLS {
			s.URL = "https://" + r.Host + r.Target
		}
		for _, name := range []string{"Signature", "Signature-Input", "Signature-Agent"} {
			s.Headers[name] = r.Header.Get(name)
		}
		all = append(all, s)
	}
	input, err := json.Marshal(map[string]any{"jwk": jwk, "requests": all})
	if err != nil {
		t.Fatal(err)
	}
	node := exec.Command("node", "verify.mjs")
	node.Dir, node.Stdin, node.Stderr = dir, bytes.NewReader(input), os.Stderr
	out, err := node.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// TestSignedCrawl crawls over HTTP and HTTPS with curl, which knows nothing of signatures. Libraries of others verify each
// request that the site received, in both forms of Signature-Agent, the fetches of robots.txt included; audit explain shows
// what was signed.
func TestSignedCrawl(t *testing.T) {
	long(t)
	program("curl")(t)
	for _, form := range []string{"dictionary", "string"} {
		t.Run(form, func(t *testing.T) {
			site := robotstest.New(t)
			site.SetRobots("a.example", robotstest.Robots{Body: "User-agent: *\nDisallow: /private/\n"})
			dir := t.TempDir()
			keys := filepath.Join(dir, "keys.json")
			id := newKeys(t, keys)
			s := startIn(t, dir, siteConfig(site)+fmt.Sprintf(
				"sign: {agent: 'https://crawler.example.org', key_file: %s, form: %s}\n", keys, form))
			curl := []string{"-sS", "-o", os.DevNull, "-x", "http://" + s.proxy, "--cacert", s.ca}
			for _, base := range []string{
				fmt.Sprintf("http://a.example:%d", site.Port()), fmt.Sprintf("https://a.example:%d", site.TLSPort()),
			} {
				curl = append(curl, base+"/page/1", base+"/page/2", base+"/redirect?to=/page/3")
			}
			if out, err := exec.Command("curl", append(curl, "-L")...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			arrived := site.Requests()
			if len(arrived) != 2+8 { // robots.txt of two origins
				t.Errorf("%d requests, want 10: %v", len(arrived), arrived)
			}
			for i, said := range verified(t, publicKey(t, keys), arrived) {
				if said != "valid" {
					t.Errorf("%v: %s\n%v", arrived[i], said, arrived[i].Header)
				}
			}
			checkSignatureRecords(t, s, id)
		})
	}
}

func checkSignatureRecords(t *testing.T, s *server, id string) {
	t.Helper()
	all := s.allRecords(t)
	nonces := make(map[string]bool)
	for _, rec := range all {
		if rec.KeyID != id || rec.SignatureAgent == "" || rec.SignedAt.IsZero() {
			t.Errorf("%s %s: the record names the key %q of %q", rec.Via, rec.Path, rec.KeyID, rec.SignatureAgent)
		}
		nonces[rec.SignatureNonce] = true
	}
	if len(nonces) != len(all) {
		t.Errorf("%d nonces in %d records", len(nonces), len(all))
	}
	rec := all[len(all)-1]
	out, err := exec.Command(binaryPath, "audit", "explain", rec.ID.String(), "--data-dir", s.dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{`"@authority": a.example:`, `;keyid="` + id + `"`, `nonce="` + rec.SignatureNonce + `"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("audit explain does not show %s:\n%s", want, out)
		}
	}
}

// TestSignaturesOfClients has a client with a key of its own, one that is not signed, and one that signs itself.
func TestSignaturesOfClients(t *testing.T) {
	program("curl")(t)
	site := robotstest.New(t)
	dir := t.TempDir()
	keys, own := filepath.Join(dir, "keys.json"), filepath.Join(dir, "own.json")
	id, ownID := newKeys(t, keys), newKeys(t, own)
	passwords := writeFile(t, dir, "htpasswd", "")
	for _, user := range []string{"own", "none", "all", "replaced", "b"} {
		line, err := os.ReadFile(writeHtpasswd(t, t.TempDir(), user, "pw"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(passwords)
		if err != nil {
			t.Fatal(err)
		}
		passwords = writeFile(t, dir, "htpasswd", string(text)+string(line))
	}
	s := startIn(t, dir, siteConfig(site)+fmt.Sprintf(`auth: {htpasswd_file: %s}
sign: {agent: 'https://crawler.example.org', key_file: %s, hosts: [a.example]}
clients:
  - {name: own, user: own, sign: {key_file: %s}}
  - {name: none, user: none, sign: {agent: none}}
  - {name: replaced, user: replaced, sign: {agent: 'https://other.example', key_file: %s, existing: replace, form: string}}
  - {name: all, user: all}
  - {name: b, user: b, sign: {hosts: [b.example], form: string}}
`, passwords, keys, own, own))
	fetch := func(user, host string, more ...string) {
		t.Helper()
		args := append([]string{
			"-sS", "-o", os.DevNull, "-x", "http://" + user + ":pw@" + s.proxy, fmt.Sprintf("http://%s:%d/by-%s", host, site.Port(), user),
		}, more...)
		if out, err := exec.Command("curl", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	mine := []string{"-H", "Signature: me=:AA==:", "-H", `Signature-Input: me=("@method")`, "-H", `Signature-Agent: me="https://me.example"`}
	fetch("own", "a.example")
	fetch("none", "a.example")
	fetch("all", "a.example")
	fetch("all", "b.example")
	fetch("b", "a.example")
	fetch("b", "b.example")
	fetch("own", "a.example", append(mine, "--data", "x")...)
	fetch("replaced", "a.example", mine...)
	for _, r := range site.Requests() {
		if r.Target == "/robots.txt" {
			if signed := r.Header.Get("Signature") != ""; signed != strings.HasPrefix(r.Host, "a.example:") {
				t.Errorf("robots.txt of %s: signed: %v", r.Host, signed)
			}
			continue
		}
		input, agent := r.Header.Get("Signature-Input"), r.Header.Get("Signature-Agent")
		want, wantAgent := "", ""
		switch {
		case r.Target == "/by-own" && r.Method == "POST":
			want, wantAgent = `me=("@method")`, `me="https://me.example"`
		case r.Target == "/by-own":
			want, wantAgent = ownID, `sig1="https://crawler.example.org"`
		case r.Target == "/by-replaced":
			want, wantAgent = ownID, `"https://other.example"`
		case r.Target == "/by-b" && strings.HasPrefix(r.Host, "b.example:"):
			want, wantAgent = id, `"https://crawler.example.org"`
		case r.Target == "/by-all" && strings.HasPrefix(r.Host, "a.example:"):
			want, wantAgent = id, `sig1="https://crawler.example.org"`
		}
		if !strings.Contains(input, want) || want == "" && input != "" || agent != wantAgent {
			t.Errorf("%v is signed by %s as %s, want %s as %s", r, input, agent, want, wantAgent)
		}
	}
	records := ofClients(s.allRecords(t))
	signed := slices.DeleteFunc(records, func(rec audit.Record) bool { return rec.KeyID == "" })
	if len(signed) != 4 {
		t.Errorf("%d records name a key, want 4", len(signed))
	}
}

// TestKeyCheck publishes what key directory writes, and then spoils it in several ways.
func TestKeyCheck(t *testing.T) {
	site := robotstest.New(t)
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys.json")
	id := newKeys(t, keys)
	agent := fmt.Sprintf("https://a.example:%d", site.TLSPort())
	config := writeFile(t, dir, "config.yaml", siteConfig(site)+fmt.Sprintf("sign: {agent: '%s', key_file: %s}\n", agent, keys))
	key := func(args ...string) (string, int) {
		cmd := exec.Command(binaryPath, append([]string{"key"}, append(args, "--config", config, "--data-dir", filepath.Join(dir, "data"))...)...)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	publish := func() ([]byte, http.Header) {
		t.Helper()
		folder := filepath.Join(dir, "well-known")
		if out, code := key("directory", "-o", folder); code != 0 {
			t.Fatal(out)
		}
		if info, err := os.Stat(folder); err != nil || info.Mode().Perm()&0o005 != 0o005 {
			t.Errorf("the new folder has the mode %v, %v; want one that a web server can read", info.Mode(), err)
		}
		body, err := os.ReadFile(filepath.Join(folder, "http-message-signatures-directory"))
		if err != nil {
			t.Fatal(err)
		}
		lines, err := os.ReadFile(filepath.Join(folder, "http-message-signatures-directory.headers"))
		if err != nil {
			t.Fatal(err)
		}
		fields := make(http.Header)
		for line := range strings.Lines(string(lines)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			fields.Set(name, value)
		}
		return body, fields
	}
	show := func(status int, body []byte, fields http.Header) {
		site.SetPage("a.example", "/.well-known/http-message-signatures-directory", func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), fields)
			w.WriteHeader(status)
			w.Write(body)
		})
	}
	with := func(h http.Header, name, value string) http.Header {
		h = h.Clone()
		h.Set(name, value)
		return h
	}
	body, fields := publish()
	show(http.StatusOK, body, fields)
	check := func(code int, want ...string) {
		t.Helper()
		out, got := key("check")
		for _, text := range want {
			if got != code || !strings.Contains(out, text) {
				t.Errorf("key check ends with %d, want %d and %q:\n%s", got, code, text, out)
			}
		}
	}
	check(0, "has the keys that sign")
	if out, code := key("rotate"); code != 0 || !strings.Contains(out, id+"  signs\n") {
		t.Errorf("key rotate ends with %d:\n%s", code, out)
	}
	check(1, "the next key")
	if out, code := key("rotate"); code != 2 || !strings.Contains(out, "waits already") {
		t.Errorf("a second key rotate ends with %d:\n%s", code, out)
	}
	body, fields = publish()
	show(http.StatusOK, body, fields)
	check(0, "has the keys that sign")
	show(http.StatusOK, body, with(with(fields, "Content-Type", "application/json"), "Cache-Control", "max-age=604800"))
	check(1, "Content-Type", "max-age is 604800")
	show(http.StatusOK, body, with(fields, "Signature", strings.Replace(fields.Get("Signature"), "=:", "=:AAAA", 1)))
	check(1, "is not valid for a.example")
	private, _ := os.ReadFile(keys)
	if !strings.Contains(string(private), `"d"`) {
		t.Fatal("the file has no private key")
	}
	show(http.StatusOK, private, fields)
	check(1, "PRIVATE", "Content-Digest")
	show(http.StatusFound, body, fields)
	check(1, "the status is 302")
	show(http.StatusOK, body, fields)
	if out, code := key("rotate", "--compromised"); code != 0 || strings.Contains(out, id) {
		t.Errorf("key rotate --compromised ends with %d:\n%s", code, out)
	}
	check(1, "is missing", "is not one of this configuration")
	if out, code := key("check", "--agent", "https://a.example:1"); code != 4 || !strings.Contains(out, "fetching https://a.example:1/") {
		t.Errorf("key check of a closed port ends with %d:\n%s", code, out)
	}
}

// TestDirectoryOfTheAdminListener reads the directory from a running proxy, before and after a rotation, without a token.
func TestDirectoryOfTheAdminListener(t *testing.T) {
	site := robotstest.New(t)
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys.json")
	id := newKeys(t, keys)
	s := startIn(t, dir, siteConfig(site)+fmt.Sprintf("sign: {agent: 'https://crawler.example.org', key_file: %s}\n", keys))
	read := func() (string, http.Header) {
		t.Helper()
		resp, err := http.Get("http://" + s.admin + "/.well-known/http-message-signatures-directory")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d: %s, %v", resp.StatusCode, body, err)
		}
		return string(body), resp.Header
	}
	body, h := read()
	if !strings.Contains(body, id) || strings.Contains(body, `"d"`) || h.Get("Content-Type") != "application/http-message-signatures-directory+json" {
		t.Errorf("%s\n%v", body, h)
	}
	if out, err := exec.Command(binaryPath, "key", "rotate", "--key-file", keys, "--data-dir", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for end := time.Now().Add(30 * time.Second); strings.Count(body, `"kid"`) != 2; body, _ = read() {
		if time.Now().After(end) {
			t.Fatal("the running proxy did not read the new key")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestUnsigned lets the only key of a running proxy expire. The log, status and validate say that nothing is signed. Keys
// that cannot be read leave those before in force, and validate refuses them.
func TestUnsigned(t *testing.T) {
	site := robotstest.New(t)
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys.json")
	newKeys(t, keys)
	text, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte(`"use":`), []byte(fmt.Sprintf(`"exp": %d, "use":`, time.Now().Add(5*time.Second).Unix())), 1)
	config := siteConfig(site) + fmt.Sprintf("sign: {agent: 'https://crawler.example.org', key_file: %s}\n", keys)
	path := writeFile(t, t.TempDir(), "config.yaml", config)
	s := startIn(t, dir, config)
	run := func(args ...string) string {
		out, _ := exec.Command(binaryPath, append(args, "--data-dir", s.dir)...).CombinedOutput()
		return string(out)
	}
	const fault = "sign: no key in "
	logs := func(text string) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !strings.Contains(s.log.String(), text); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the log does not say %q:\n%s", text, s.log)
			}
		}
	}
	if out := run("status") + run("validate", "--config", path) + s.log.String(); strings.Contains(out, fault) {
		t.Errorf("a key that signs is reported:\n%s", out)
	}
	writeFile(t, dir, "keys.json", string(text))
	logs(fault)
	if out := run("status"); !strings.Contains(out, fault) {
		t.Errorf("status does not say that nothing is signed:\n%s", out)
	}
	if out := run("validate", "--config", path); !strings.Contains(out, "warning: "+fault) || !strings.Contains(out, "configuration OK") {
		t.Errorf("validate does not warn that nothing is signed:\n%s", out)
	}
	if out := run("run", "--config", path, "--", "true"); !strings.Contains(out, fault) {
		t.Errorf("run does not say that nothing is signed:\n%s", out)
	}
	writeFile(t, dir, "keys.json", "{}")
	if out := run("validate", "--config", path); !strings.Contains(out, "sign.key_file") || strings.Contains(out, "configuration OK") {
		t.Errorf("validate accepts a file without keys:\n%s", out)
	}
	logs("sign.key_file: " + keys)
	if out := run("status"); !strings.Contains(out, fault) {
		t.Errorf("a faulty file replaced the keys:\n%s", out)
	}
	if n := strings.Count(s.log.String(), fault); n != 1 {
		t.Errorf("the log says %d times that nothing is signed", n)
	}
}

// Two keys without an end can be in one file, if an operator has joined two.
func TestKeyStateWithoutEnd(t *testing.T) {
	now := time.Now()
	older, newer := sign.NewKeys(now.Add(-time.Hour)), sign.NewKeys(now)
	var out strings.Builder
	listKeys(&out, sign.Merge(newer, older), now)
	want := fmt.Sprintf("%s  is published\n%s  signs\n", older.List()[0].ID, newer.List()[0].ID)
	if out.String() != want {
		t.Errorf("key ls says\n%swant\n%s", out.String(), want)
	}
}

// TestKeyNewForConfiguration makes the file that the configuration names already.
func TestKeyNewForConfiguration(t *testing.T) {
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys.json")
	config := writeFile(t, dir, "config.yaml", fmt.Sprintf("sign: {agent: 'https://crawler.example.org', key_file: %s}\n", keys))
	run := func(args ...string) (string, int) {
		cmd := exec.Command(binaryPath, append(args, "--config", config, "--data-dir", filepath.Join(dir, "data"))...)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := run("validate"); code != 2 || !strings.Contains(out, keys) {
		t.Errorf("validate without the file ends with %d:\n%s", code, out)
	}
	if out, code := run("key", "new"); code != 0 || !strings.Contains(out, "The key is in "+keys) {
		t.Fatalf("key new ends with %d:\n%s", code, out)
	}
	for _, args := range [][]string{{"validate"}, {"key", "ls"}} {
		if out, code := run(args...); code != 0 {
			t.Errorf("%v ends with %d:\n%s", args, code, out)
		}
	}
}
