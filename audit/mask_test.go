package audit

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMaskedNames(t *testing.T) {
	for _, name := range []string{
		"token", "access_token", "refresh", "refresh_token", "bearer", "private_key", "privateKey", "ticket", "PHPSESSID", "JSESSIONID", "ASPSESSIONIDABC", "connect.sid",
		"cookie", "session_cookie", "hmac", "X-Hmac", "passphrase", "passcode", "password", "auth[token]", "user[pass]", "keys[]key", "oauth_verifier", "SAMLResponse", "client_assertion",
		"to%6ben", "to%256ben", "%74oken", "private%5Fkey",
	} {
		in := "a=1&" + name + "=s3cr3t&page=2"
		if got, want := QueryMask.Apply(in), "a=1&"+name+"=***&page=2"; got != want {
			t.Errorf("Apply(%q) = %q, want %q", in, got, want)
		}
	}
	for _, name := range []string{"q", "page", "keyword", "monkey", "author", "design", "inside", "signal", "compass", "opinion", "codec", "refreshed", "hash", "format"} {
		if in := name + "=value"; QueryMask.Apply(in) != in {
			t.Errorf("Apply(%q) = %q", in, QueryMask.Apply(in))
		}
	}
}

func TestMaskedValues(t *testing.T) {
	for _, row := range []struct{ in, want string }{
		{"", ""},
		{"flag", "flag"},
		{"token=", "token="},
		{"token=a=b==&x=1", "token=***&x=1"},
		{"token=a?b/c&x=1", "token=***&x=1"},
		{"token=a;b&x=1", "token=***&x=1"},
		{"token=a;x=1", "token=***;x=1"},
		{"password=a%26b%3Dc&x=1", "password=***&x=1"},
		{"state=token=abc", "state=token=***"},
		// URLs in values, with any of their characters encoded, at any depth.
		{"next=https://a/?token=s3cr3t&x=1", "next=https://a/?token=***&x=1"},
		{"next=https%3A%2F%2Fa%2F%3Ftoken%3Ds3cr3t", "next=https%3A%2F%2Fa%2F%3Ftoken%3D***"},
		{"next=https%3A%2F%2Fa%2F%3Fx%3D1%26token%3Ds3cr3t%26y%3D2&z=3", "next=https%3A%2F%2Fa%2F%3Fx%3D1%26token%3D***%26y%3D2&z=3"},
		{"next=https%3a//a/%3ftoken=s3cr3t%26y=2", "next=https%3a//a/%3ftoken=***"},
		{"next=%2Fb%3Fto%256ben%3Ds3cr3t", "next=%2Fb%3Fto%256ben%3D***"},
		{"n=%2Fa%3Fn%3D%252Fb%253Ftoken%253Ds3cr3t%2526x%253D1%26y%3D1&z=1", "n=%2Fa%3Fn%3D%252Fb%253Ftoken%253D***%2526x%253D1%26y%3D1&z=1"},
		{"n=%25252Fb%25253Ftoken%25253Ds3cr3t", "n=%25252Fb%25253Ftoken%25253D***"},
		{"n=https%3A%2F%2Fa%2F%3Fpassword%3Da%2526b&z=1", "n=https%3A%2F%2Fa%2F%3Fpassword%3D***&z=1"},
		{"n=" + strings.Repeat("%25", 20) + "3Ftoken%3Ds3cr3t", "n=" + strings.Repeat("%25", 20) + "3Ftoken%3D***"},
		// Their fragments, userinfo and path parameters.
		{"next=https%3A%2F%2Fa%2F%23access_token%3Ds3cr3t", "next=https%3A%2F%2Fa%2F%23access_token%3D***"},
		{"next=https://u:s3cr3t@a/x?y=1&z=b@c", "next=https://***@a/x?y=1&z=b@c"},
		{"next=https%3A%2F%2Fu%3Ap%40ss%252Fs3cr3t%40a%2Fx", "next=https%3A%2F%2F***%40a%2Fx"},
		{"next=/a;jsessionid=s3cr3t/b", "next=/a;jsessionid=***"},
		{"next=https://a/@b", "next=https://a/@b"},
		{"x=100%&y=%zz%3", "x=100%&y=%zz%3"},
		// JSON in values.
		{`f={"token":"s3cr3t","page":2}&x=1`, `f={"token":***,"page":2}&x=1`},
		{"f=%7B%22token%22%3A%22s3cr3t%22%2C%22page%22%3A2%7D", "f=%7B%22token%22%3A***%2C%22page%22%3A2%7D"},
		{"f=%257B%2522token%2522%253A+%2522s3cr3t%2522%257D", "f=%257B%2522token%2522%253A+***%257D"},
		{`f={"user":{"api_key" : "a\"s3cr3t"},"x":1}`, `f={"user":{"api_key" : ***},"x":1}`},
		{`f={"tokens":["s3cr3t","s3cr3t"],"x":1}`, `f={"tokens":***,"x":1}`},
		{`f={"pin":1234}&x=1`, `f={"pin":***}&x=1`},
		{`f={"a":"{\"token\":\"s3cr3t\",\"b\":1}","c":2}`, `f={"a":"{\"token\":***,\"b\":1}","c":2}`},
		{"f={'token':'s3cr3t'}", "f={'token':***}"},
		{`f={"token":"s3cr3t`, `f={"token":***`},
		{`f={"page":"token","q":"a"}`, `f={"page":"token","q":"a"}`},
		// Tokens in values with ordinary names.
		{"t=eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2ln&x=1", "t=***&x=1"},
		{"n=%2Fa%3Ft%3DeyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2ln%26x=1", "n=%2Fa%3Ft%3D***%26x=1"},
		{"h=Bearer%20s3cr3t&x=1", "h=Bearer%20***&x=1"},
		{"h=bearer+s3cr3t", "h=bearer+***"},
		{"q=ring+bearer+pillow&t=eyJ.a", "q=ring+bearer+pillow&t=eyJ.a"},
	} {
		if got := QueryMask.Apply(row.in); got != row.want {
			t.Errorf("Apply(%q)\n got %q\nwant %q", row.in, got, row.want)
		}
	}
}

func TestMaskedPath(t *testing.T) {
	for _, row := range []struct{ in, want string }{
		{"/", "/"},
		{"/a/b.html", "/a/b.html"},
		{"/a;v=1/b", "/a;v=1/b"},
		{"/a;jsessionid=s3cr3t", "/a;jsessionid=***"},
		{"/a;jsessionid=s3cr3t/b;v=1", "/a;jsessionid=***/b;v=1"},
		{"/a;JSESSIONID=s3cr3t;v=1", "/a;JSESSIONID=***;v=1"},
		{"/a%3Bjsessionid%3Ds3cr3t/b", "/a%3Bjsessionid%3D***/b"},
		{"/token=s3cr3t/b", "/token=***/b"},
		{"/go/https%3A%2F%2Fb%2F%3Ftoken%3Ds3cr3t%26x%3D1/c", "/go/https%3A%2F%2Fb%2F%3Ftoken%3D***%26x%3D1/c"},
		{"/go/https://u:s3cr3t@b/c", "/go/https://***@b/c"},
		{"/token/x", "/token/x"},
		{"/login/eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2ln/b", "/login/***/b"},
	} {
		for _, m := range []QueryMode{QueryMask, QueryHash, QueryDrop} {
			if got := m.Path(row.in); got != row.want {
				t.Errorf("%v.Path(%q) = %q, want %q", m, row.in, got, row.want)
			}
		}
		if got := QueryKeep.Path(row.in); got != row.in {
			t.Errorf("QueryKeep.Path(%q) = %q", row.in, got)
		}
	}
}

func TestMaskedText(t *testing.T) {
	for _, row := range []struct{ in, want string }{
		{"NewsBot/1.0 (+https://example.org/bot?v=1)", "NewsBot/1.0 (+https://example.org/bot?v=1)"},
		{"NewsBot/1.0 (+https://u:s3cr3t@example.org/; token=s3cr3t) x/1", "NewsBot/1.0 (+https://***@example.org/; token=***) x/1"},
		{"NewsBot/1.0 token=s3cr3t x/1", "NewsBot/1.0 token=*** x/1"},
		{"NewsBot/1.0 Bearer s3cr3t x/1", "NewsBot/1.0 Bearer *** x/1"},
		{"authorization: bearer  abc; NewsBot", "authorization: bearer  ***; NewsBot"},
		{"Basic dTpzM2NyM3Q= x/1", "Basic ***= x/1"},
		{"NewsBot (token: s3cr3t)", "NewsBot (token: ***)"},
		{"NewsBot (api-key: secretword; x)", "NewsBot (api-key: ***; x)"},
		{"X-Api-Key:secretword x/1", "X-Api-Key:*** x/1"},
		{"Cookie: a=b, error code: 404", "Cookie: ***, error code: 404"},
		{"NewsBot eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2ln", "NewsBot ***"},
		{`NewsBot {"token":"s3cr3t"}`, `NewsBot {"token":***}`},
		{"Mozilla/5.0 (Visual Basic 6.0; basic edition) Bearer", "Mozilla/5.0 (Visual Basic 6.0; basic edition) Bearer"},
		{"unexpected token ',' at 3", "unexpected token ',' at 3"},
	} {
		if got := QueryMask.Text(row.in); got != row.want {
			t.Errorf("Text(%q) = %q, want %q", row.in, got, row.want)
		}
	}
}

// A mask takes time in proportion to its query, however deep that is encoded.
func TestMaskTakesLinearTime(t *testing.T) {
	for _, piece := range []string{"%25", "%253D", "token%3D", "a=", "://", "://@", ";", "?", `"token":`, `\"`, `"token":[`, `"a":`, "%22token%22%3A%22", "Bearer ", "%2525252525252525252526"} {
		cost := func(n int) time.Duration {
			in := "x=" + strings.Repeat(piece, n/len(piece))
			least := time.Hour // of several: the machine does other work too
			for range 5 {
				began := time.Now()
				QueryMask.Apply(in)
				least = min(least, time.Since(began))
			}
			return least
		}
		if small, large := cost(1<<14), cost(1<<17); large > 64*max(small, time.Millisecond) {
			t.Errorf("%q: 16 KiB take %v, and 128 KiB %v", piece, small, large)
		}
	}
}

func FuzzMask(f *testing.F) {
	for _, s := range []string{"a=1&token=x", "next=%2Fa%3Ftoken%3Dx", "://u@a", "%2525", `{"token":"x"}`, "%7B%22token%22%3A%5B%22x%22%5D", `"a":"{\"pin\":1}"`, "Bearer x", `"token":":"x`, "eyJ.x.y", "bearer+s3cr3t"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once := QueryMask.Apply(s)
		if again := QueryMask.Apply(once); again != once {
			t.Errorf("Apply(%q) = %q, and of that %q", s, once, again)
		}
		QueryMask.Path(s)
		QueryMask.Text(s) // not twice: a mark that it leaves can look like the value of another name
	})
}

func TestMaskedURLs(t *testing.T) {
	got := MaskedURLs([]string{"http://u:s3cr3t@a.example/moved;jsessionid=s3cr3t/robots.txt?token=s3cr3t&page=2", "/robots.txt"})
	want := []string{"http://***@a.example/moved;jsessionid=***/robots.txt?token=***&page=2", "/robots.txt"}
	if !slices.Equal(got, want) || MaskedURLs(nil) != nil {
		t.Errorf("MaskedURLs = %v, want %v", got, want)
	}
}
