package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

func TestManners(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "admin.token"), []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refusing := robotstest.Refusing(t)
	for _, row := range []struct {
		args   []string
		status int
		out    string // in standard output
		talk   string // in standard error
	}{
		{[]string{"--version"}, 0, "robotsproxy ", ""},
		{[]string{"help", "nosuch"}, exitUsage, "", `there is no command "nosuch"`},
		{[]string{"help", "serv"}, exitUsage, "", `did you mean "serve"?`},
		{[]string{"help", "ca", "nosuch"}, exitUsage, "", `there is no command "nosuch"; robotsproxy ca --help lists them`},
		{[]string{"help", "ca", "install"}, 0, "--nss", ""},
		{[]string{"help"}, 0, "Available Commands", ""},
		{[]string{"check", "/private/x"}, exitUsage, "", "write the URL, such as https://a.example/private/x"},
		{[]string{"check", "a.example/x"}, exitUsage, "", "did you mean https://a.example/x?"},
		{[]string{"serve", "--data-dir", file}, exitUsage, "", "file is not a folder"},
		{[]string{"status", "--data-dir", data, "--admin", "http://" + refusing}, exitNotRunning, "", "nothing listens on " + refusing},
		{[]string{"check", "http://" + refusing + "/x", "--data-dir", data}, exitUnknown, "nothing listens on " + refusing, ""},
		{[]string{"lint", "http://" + refusing, "--data-dir", data}, exitUnknown, "", "nothing listens on " + refusing},
		{[]string{"serve", "--help"}, 0, "for root in /var/lib/robotsproxy", ""},
		{[]string{"serve", "--help"}, 0, "--mode MODE", ""},
	} {
		var out, talk bytes.Buffer
		status := run(row.args, stdio{nil, &out, &talk})
		if status != row.status || !strings.Contains(out.String(), row.out) || !strings.Contains(talk.String(), row.talk) {
			t.Errorf("robotsproxy %v = %d, %q, %q; want %d, %q, %q", row.args, status, &out, &talk, row.status, row.out, row.talk)
		}
		for _, wording := range []string{"dial tcp", "connect:", "bind:"} {
			if strings.Contains(out.String()+talk.String(), wording) {
				t.Errorf("robotsproxy %v has the wording of package net: %q, %q", row.args, &out, &talk)
			}
		}
	}
}

// A taken port is reported with its key and flag.
func TestTakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().String()
	var talk bytes.Buffer
	status := run([]string{"serve", "--data-dir", t.TempDir(), "--listen", at, "--admin-listen", "127.0.0.1:0"}, stdio{nil, &talk, &talk})
	if want := "listen: another program listens on " + at + "; choose another address with --listen"; status != exitUsage || !strings.Contains(talk.String(), want) {
		t.Errorf("serve at a taken port = %d, %q; want %d, %q", status, &talk, exitUsage, want)
	}
}

// Names in help that stand for a value are in capitals, and completion offers the values of flags that take a few.
func TestFlags(t *testing.T) {
	long(t)
	few := map[string]string{"mode": "report", "dialect": "google", "format": "json", "shell": "fish"}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name, _ := pflag.UnquoteUsage(f)
			if strings.ToUpper(name) != name && f.Value.Type() != "bool" {
				t.Errorf("%s --%s %s: want the name of the value in capitals", cmd.CommandPath(), f.Name, name)
			}
			value := few[f.Name]
			if value == "" {
				return
			}
			if cmd.Name() == "export" {
				value = "squid"
			}
			args := append(strings.Fields(cmd.CommandPath())[1:], "--"+f.Name, "")
			out, err := exec.Command(binaryPath, append([]string{"__complete"}, args...)...).Output()
			if err != nil || !strings.Contains(string(out), value+"\n") {
				t.Errorf("completion of %v = %q, %v; want %s in it", args, out, err, value)
			}
		})
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(newRoot(stdio{}))
}

// The banner is the first text of serve, whatever it has to report.
func TestNothingBeforeTheBanner(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("limits: {connections: 900000}\nhosts: [{host: '*', mode: report}, {host: a.example, mode: off}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := startServer(filepath.Join(t.TempDir(), "data"), append(os.Environ(), "HOME="+t.TempDir(), "ROBOTSPROXY_NOSUCH=1"), "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	text := s.log.String()
	if !strings.HasPrefix(text, "robotsproxy ") || !strings.Contains(text, "descriptors") || strings.Count(text, "warning:") != 2 {
		t.Errorf("serve printed\n%s\nwant the banner first, and then two warnings and the limit of connections", text)
	}
}

func TestMoment(t *testing.T) {
	now := time.Date(2026, 12, 31, 23, 55, 0, 0, time.Local)
	for after, want := range map[time.Duration]string{
		5 * time.Minute: "00:00:00", 2 * time.Hour: "01:55", -2 * time.Hour: "21:55", -20 * time.Hour: "31 Dec 03:55", 20 * time.Hour: "1 Jan 2027",
	} {
		if got := moment(now.Add(after), now); got != want {
			t.Errorf("moment of %v from now = %q, want %q", after, got, want)
		}
	}
}
