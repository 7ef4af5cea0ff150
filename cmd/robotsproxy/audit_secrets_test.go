package main

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

// planted is in every place of a request that can hold a credential.
const planted = "s3cr3t"

// secretForms are the forms of planted that an output must not contain.
var secretForms = []string{
	planted, strings.ToUpper(planted), "%73%33%63%72%33%74", fmt.Sprintf("%x", planted),
	strings.TrimRight(base64.StdEncoding.EncodeToString([]byte("u:"+secret)), "="),
}

// redirectTarget is the target to which a robots.txt redirects.
const redirectTarget = "/moved;jsessionid=s3cr3t/robots.txt?token=s3cr3t"

// licenseLine is a line of a robots.txt. The file is public, and is kept and shown byte by byte as evidence. The preference
// that records take from it must hold no credentials.
const licenseLine = "License: https://u:s3cr3t@a.example/terms?token=s3cr3t"

// hostileTargets have credentials, nested and encoded, and texts that a terminal, a page or a spreadsheet acts on.
var hostileTargets = []string{
	"/x?token=s3cr3t", "/x?next=https%3A%2F%2Fu%3As3cr3t%40a%2F", "/x?next=%252Fa%253Ftoken%253Ds3cr3t", "/x;jsessionid=s3cr3t/y",
	"/go/https%3A%2F%2Fb%2F%3Ftoken%3Ds3cr3t", "/private/?sig=s3cr3t", "/x?X-Amz-Signature=s3cr3t", "/x#token=s3cr3t", "/x?h=Bearer%20s3cr3t",
	"/x?f=%7B%22token%22%3A%22s3cr3t%22%7D", `/x?f={"user":{"token":["s3cr3t"]}}`, "/x?f=%7B%22a%22%3A%22%7B%5C%22token%5C%22%3A%5C%22s3cr3t%5C%22%7D%22%7D",
	"/=1+1", "/%1b[31m", "/%1B%5D0;title%07", "/%E2%80%AEtxt", "/<script>alert(1)</script>", "/%3Cscript%3E", "/%ff%fe", "/private/=cmd", "/?=1&@x", "/a,b\"c",
}

// hostileAgents are values of User-Agent.
var hostileAgents = []string{
	"NewsBot (+https://u:s3cr3t@a/?token=s3cr3t)", "NewsBot/1.0 Bearer s3cr3t", "NewsBot/1.0 (Basic dTpzM2NyM3Q=)", "NewsBot/1.0 token: s3cr3t", "=HYPERLINK(\"http://x\")", "+1", "-2", "@SUM(1)", "Bot\u202e", "Bot\xff\xfe", "<script>alert(1)</script>",
	"\t=1", strings.Repeat("A", 60<<10),
}

// outputs are command lines that read the records, below "robotsproxy audit". ID is the id of a refusal, MOVED that of a
// request with a redirected robots.txt, HOST a host, OUT a new file, which is searched too. Every command must be here.
var outputs = []string{
	"", "list", "list --via plain,intercepted,tunnel,robots", "summary", "summary --by host,path,client,agent,rule,reason,decision",
	"top hosts", "top paths", "top clients", "top agents", "top rules", "top reasons", "explain ID", "explain MOVED", "would-deny", "usage",
	"spacing", "spacing HOST", "replay", "changes HOST", "dossier HOST -o OUT", "export --format csv", "export --format jsonl", "export --format parquet -o OUT",
	"export --format squid", "seal", "verify", "prune --older-than 30d", "erase --client nobody --dry-run",
}

// rawOutputs print a robots.txt or a policy byte by byte.
var rawOutputs = []string{"explain ID --body"}

// runnable returns the commands below cmd that do something.
func runnable(cmd *cobra.Command) (paths []string) {
	for _, c := range cmd.Commands() {
		if c.HasSubCommands() {
			paths = append(paths, runnable(c)...)
		} else if c.Runnable() && c.IsAvailableCommand() {
			paths = append(paths, strings.TrimPrefix(c.CommandPath(), "audit "))
		}
	}
	return paths
}

// takesFormat reports whether the command of line has a flag for the format.
func takesFormat(t *testing.T, line string) bool {
	t.Helper()
	cmd, _, err := newAudit(stdio{}).Find(strings.Fields(line))
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Flags().Lookup("format") != nil
}

// TestSecretsOfAudit searches every output about the records for credentials, and for what a terminal acts on.
func TestSecretsOfAudit(t *testing.T) {
	long(t)
	site := robotstest.New(t)
	site.SetRobots("a.example", robotstest.Robots{Body: "# " + hostileTexts[0] + "\nUser-agent: *\nDisallow: /private/\nDisallow: /closed" + hostileTexts[0] + "\nCrawl-delay: 0.001\n" +
		strings.Repeat("#\n", 10) + licenseLine + "\n"})
	site.SetPage("a.example", "/terms", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "<https://u:s3cr3t@a.example/terms?token=s3cr3t>; rel=license")
		w.Header().Set("Tdm-Policy", "https://u:s3cr3t@a.example/terms?token=s3cr3t")
	})
	site.SetRobots("b.example", robotstest.Robots{Redirect: redirectTarget})
	s := startSite(t, site, "\n  resolve: {a.example: 127.0.0.1, b.example: 127.0.0.1}\nlog: {level: debug}\nmode: report\nclients: [{name: '=news', cidr: [127.0.0.0/8], mode: enforce}]\n")
	answers := crawlWithSecrets(t, s, site)
	search := func(what string, data []byte, text bool) {
		t.Helper()
		data = bytes.ReplaceAll(data, []byte(licenseLine), nil)
		for _, form := range secretForms {
			if i := bytes.Index(data, []byte(form)); i >= 0 {
				t.Errorf("%s has a secret: %q", what, data[max(0, i-60):min(len(data), i+60)])
			}
		}
		if bad := unsafe(string(data)); text && bad != "" {
			t.Errorf("%s has %s: %.2000q", what, bad, data)
		}
	}
	for what, answer := range answers {
		search(what, answer, true)
	}
	for _, path := range []string{"/metrics", "/api/v1/status", "/api/v1/cache", "/api/v1/hosts"} {
		search(path, s.adminGet(t, path), true)
	}
	id := s.idOf(t, "--decision", "deny", "--reason", "robots")
	moved := s.idOf(t, "--host", "b.example")
	for _, question := range []string{
		"records?limit=1000", "records?format=jsonl", "records?format=csv&via=plain,intercepted,tunnel,robots", "records/" + id, "records/" + moved, "top/paths?format=csv",
		"top/rules", "top/clients?format=jsonl", "summary?by=client,agent,rule", "would-deny", "usage?format=csv", "timeline", "spacing?format=csv", "changes?host=a.example", "files?host=a.example", "files?host=b.example",
	} {
		answer := s.adminGet(t, "/api/v1/audit/"+question)
		search(question, answer, true)
		if strings.Contains(question, "format=csv") {
			noFormulas(t, question, answer)
		}
	}
	for _, path := range []string{
		"/", "/decisions", "/decisions?decision=deny", "/decisions/" + id, "/decisions/" + moved, "/hosts", "/hosts/a.example", "/hosts/b.example", "/clients", "/settings",
	} {
		page := s.adminGet(t, path)
		search(path, page, false)
		if bytes.Contains(page, []byte("<script>alert")) {
			t.Errorf("%s has a script of a client", path)
		}
	}
	answer := func(line, format string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "out")
		raw := slices.Contains(rawOutputs, line)
		line = strings.NewReplacer("ID", id, "MOVED", moved, "HOST", "a.example", "OUT", file).Replace(line)
		args := append([]string{"audit"}, strings.Fields(line)...)
		if format != "" {
			args = append(args, "--format", format)
		}
		cmd := exec.Command(binaryPath, append(args, "--data-dir", s.dir)...)
		var talk bytes.Buffer
		cmd.Stderr = &talk
		out, err := cmd.Output()
		if err != nil && cmd.ProcessState.ExitCode() != exitUnknown {
			t.Errorf("%v: %v: %.500s", args, err, &talk)
			return
		}
		what := strings.Join(args, " ")
		search(what, out, !raw)
		search(what, talk.Bytes(), true)
		if data, err := os.ReadFile(file); err == nil {
			searchFile(t, what, data, search)
		}
		if format == string(auditview.CSV) {
			noFormulas(t, what, out)
		}
	}
	for _, line := range outputs {
		if strings.Contains(line, "--format") || !takesFormat(t, line) {
			answer(line, "")
			continue
		}
		for _, format := range auditview.Formats {
			answer(line, string(format))
		}
	}
	for _, line := range rawOutputs {
		answer(line, "")
	}
	for _, path := range runnable(newAudit(stdio{})) {
		if !slices.ContainsFunc(outputs, func(line string) bool { return line == path || strings.HasPrefix(line, path+" ") }) {
			t.Errorf("robotsproxy audit %s is missing in outputs", path)
		}
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	search("the log", []byte(s.log.String()), true)
	searchFolder(t, s.dir, func(what string, data []byte, text bool) {
		if strings.HasPrefix(filepath.Base(what), "state.db") {
			data = bytes.ReplaceAll(data, []byte(redirectTarget), nil) // the proxy compares the chain when it validates the file
		}
		search(what, data, text)
	})
}

// crawlWithSecrets sends requests that hold planted in many places. It returns the refusals that it has received, by
// their names.
func crawlWithSecrets(t *testing.T, s *server, site *robotstest.Site) map[string][]byte {
	host := fmt.Sprintf("a.example:%d", site.Port())
	basic := base64.StdEncoding.EncodeToString([]byte("u:" + planted))
	accept, tags := "*/*", []string{"Bearer s3cr3t", "night token=s3cr3t", "https://u:s3cr3t@a/", "token: s3cr3t"}
	send := func(target, agent string) string {
		t.Helper()
		tags = append(tags[1:], tags[0])
		return s.exchange(t, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nReferer: http://%s/?token=s3cr3t\r\nUser-Agent: %s\r\nCookie: sid=s3cr3t\r\nAccept: %s\r\n"+
			"Authorization: Bearer s3cr3t\r\nProxy-Authorization: Basic %s\r\nX-Api-Key: s3cr3t\r\nRobotsproxy-Tag: %s\r\nConnection: close\r\n\r\n",
			target, host, host, agent, accept, basic, tags[0]), "")
	}
	for _, target := range hostileTargets {
		send("http://"+host+target, "NewsBot/1.0")
	}
	for _, agent := range hostileAgents {
		send("http://"+host+"/private/agent", agent)
		send("http://"+host+"/agent", agent)
	}
	send("http://u:s3cr3t@"+host+"/x", "NewsBot/1.0")
	send("http://"+host+"/%zz?token=s3cr3t", "NewsBot/1.0")
	send("http:a.example/?token=s3cr3t", "NewsBot/1.0")
	send("http://"+host+"/terms", "NewsBot/1.0")
	answers := make(map[string][]byte)
	for _, accept = range []string{"text/html", "application/json", "text/plain"} {
		for _, agent := range hostileAgents[:4] {
			answer := send("http://"+host+`/private/?token=s3cr3t&f={"token":"s3cr3t"}`, agent)
			_, body, _ := strings.Cut(answer, "\r\n\r\n")
			if !strings.HasPrefix(answer, "HTTP/1.1 403 ") || body == "" {
				t.Errorf("%s: no refusal with a body: %.300q", accept, answer)
			}
			answers["the refusal as "+accept+" for "+agent] = []byte(body)
		}
	}
	s.fetch(t, fmt.Sprintf("http://b.example:%d/private/x", site.Port()), "*/*")
	if curl, err := exec.LookPath("curl"); err == nil {
		cmd := exec.Command(curl, "-sk", "-o", "/dev/null", "-u", "u:s3cr3t", "-b", "sid=s3cr3t", "-x", "http://"+s.proxy, "-U", "u:s3cr3t",
			fmt.Sprintf("https://u:s3cr3t@a.example:%d/x?access_token=s3cr3t", site.TLSPort()))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("curl: %v: %s", err, out)
		}
	}
	return answers
}

// idOf returns the id of the last record that some flags select, once it is stored.
func (s *server) idOf(t *testing.T, flags ...string) (id string) {
	t.Helper()
	settle(t, fmt.Sprintf("a record of %v is stored", flags), func() bool {
		args := append([]string{"audit", "list", "--data-dir", s.dir, "--limit", "1", "--format", "csv"}, flags...)
		out, err := exec.Command(binaryPath, args...).Output()
		rows, _ := csv.NewReader(bytes.NewReader(out)).ReadAll()
		if err != nil || len(rows) < 2 {
			return false
		}
		id = rows[1][0]
		return true
	})
	return id
}

// adminGet returns an answer of the admin listener.
func (s *server) adminGet(t *testing.T, path string) []byte {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(s.dir, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.admin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s, %v", path, resp.Status, err)
	}
	return body
}

// robotsName is the name of a robots.txt, byte by byte, in a dossier.
var robotsName = regexp.MustCompile(`^robots/.*-version-\d+\.txt$`)

// searchFile searches a file that a command wrote. If it is an archive, its files are searched.
func searchFile(t *testing.T, what string, data []byte, search func(string, []byte, bool)) {
	t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		search(what, data, false)
		return
	}
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		inner, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		search(what+": "+f.Name, inner, !robotsName.MatchString(f.Name))
		if strings.HasSuffix(f.Name, ".html") && bytes.Contains(inner, []byte("<script>alert")) {
			t.Errorf("%s: %s has a script of a client", what, f.Name)
		}
	}
}

// searchFolder searches all files of the data folder: databases with their logs, lines, and the rest.
func searchFolder(t *testing.T, dir string, search func(string, []byte, bool)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		search(path, data, strings.HasSuffix(path, ".jsonl"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// noFormulas checks that a spreadsheet reads all cells as texts or numbers.
func noFormulas(t *testing.T, what string, data []byte) {
	t.Helper()
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	for _, row := range rows {
		for _, field := range row {
			if field != "" && strings.ContainsRune("=+-@\t\r", rune(field[0])) {
				t.Errorf("%s has the formula %q", what, field)
			}
		}
	}
}
