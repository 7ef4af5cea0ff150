package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smallstep/truststore"
)

// The test replaces the system's store by a folder, and the program that updates it by a script. It cannot run sudo.
func TestSystemStore(t *testing.T) {
	root, bin, data := t.TempDir(), t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"tee": "#!/bin/sh\n/bin/cat > \"$1\"\n", "rm": "#!/bin/sh\n/bin/rm \"$@\"\n", "update": "#!/bin/sh\necho updated >> '" + root + "/log'\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	filename, command := truststore.SystemTrustFilename, truststore.SystemTrustCommand
	t.Cleanup(func() { truststore.SystemTrustFilename, truststore.SystemTrustCommand = filename, command })
	truststore.SystemTrustFilename, truststore.SystemTrustCommand = filepath.Join(root, "%s.crt"), []string{"update"}
	t.Setenv("PATH", bin)
	t.Setenv("HOME", t.TempDir())
	ca := func(args ...string) (status int, stdout, stderr string) {
		var out, talk bytes.Buffer
		status = run(append(append([]string{"ca"}, args...), "--data-dir", data), stdio{nil, &out, &talk})
		return status, out.String(), talk.String()
	}
	installed := func() []string {
		files, err := filepath.Glob(filepath.Join(root, "*.crt"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}

	// Without certutil the NSS store is skipped with a hint. With its flag that is an error.
	status, out, talk := ca("install")
	if status != 0 || !strings.HasPrefix(out, "installed ") || !strings.Contains(talk, "apt install libnss3-tools") {
		t.Errorf("install = %d, %q, %q; want the system's store alone", status, out, talk)
	}
	if status, _, talk := ca("install", "--nss"); status != 1 || !strings.Contains(talk, "apt install libnss3-tools") {
		t.Errorf("install --nss = %d, %q; want 1 and the remedy", status, talk)
	}
	files := installed()
	if len(files) != 1 {
		t.Fatalf("the store holds %v, want one certificate", files)
	}
	got, err := os.ReadFile(files[0])
	want, err2 := os.ReadFile(filepath.Join(data, "ca.pem"))
	if err != nil || err2 != nil || !bytes.Equal(got, want) {
		t.Errorf("%s holds %s, want our CA: %s", files[0], got, want)
	}
	if err := os.WriteFile(filepath.Join(root, "other.crt"), got, 0o600); err != nil {
		t.Fatal(err)
	}

	// After a rotation both CAs are in the store. uninstall removes both, and nothing else.
	for _, args := range [][]string{{"rotate"}, {"install", "--system"}, {"install", "--system"}} {
		if status, _, talk := ca(args...); status != 0 {
			t.Errorf("%v = %d, %q", args, status, talk)
		}
	}
	if files := installed(); len(files) != 3 {
		t.Errorf("the store holds %v, want both CAs and another", files)
	}
	ca("rotate", "--now")
	if status, out, talk := ca("uninstall", "--system"); status != 0 || strings.Count(out, "not in any more") != 2 {
		t.Errorf("uninstall = %d, %q, %q; want two not in any more", status, out, talk)
	}
	if err := os.Remove(filepath.Join(root, "other.crt")); err != nil {
		t.Fatal(err)
	}
	if status, out, talk := ca("uninstall", "--system"); status != 0 || strings.Count(out, "not there") != 2 {
		t.Errorf("another uninstall = %d, %q, %q; want two not there", status, out, talk)
	}
	if err := os.WriteFile(filepath.Join(root, "other.crt"), got, 0o600); err != nil {
		t.Fatal(err)
	}
	if files := installed(); len(files) != 1 || filepath.Base(files[0]) != "other.crt" {
		t.Errorf("the store holds %v, want the other one alone", files)
	}

	// The error contains the output of the system's program.
	if err := os.WriteFile(filepath.Join(bin, "update"), []byte("#!/bin/sh\necho the store is broken >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if status, _, talk := ca("install", "--system"); status != 1 || !strings.Contains(talk, "update: the store is broken") {
		t.Errorf("install = %d, %q; want 1 and what the program said", status, talk)
	}
}
