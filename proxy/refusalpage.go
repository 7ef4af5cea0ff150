package proxy

import (
	_ "embed" // the page
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/internal/style"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/rules"
)

// refusalPage is the data of refusal.html.
type refusalPage struct {
	*problem
	CSS         template.CSS
	Class, Word string // of the pill
	Lead        string
	Host        string
	Lines       []pageLine
	Enforced    bool   // the link to robots.txt gives the file that is enforced
	Age         string // of the robots.txt
	Steps       []step
}

// pageLine is a line of robots.txt, and whether those before it are left out.
type pageLine struct {
	shownLine
	Class string // hit or comment
	Gap   bool
}

//go:embed refusal.html
var pageHTML string

var page = template.Must(template.New("refusal").Funcs(template.FuncMap{"safe": safetext.Text}).Parse(pageHTML))

// page returns the data of the page.
func (r *refusal) page(id string) refusalPage {
	f := r.facts()
	p := refusalPage{
		problem: r.problem(f, id), CSS: style.CSS, Class: "blocked", Word: "Not fetched", Lead: r.lead(f),
		Host: f.Host, Enforced: f.enforced, Steps: r.next(f, id),
	}
	switch r.Outcome {
	case policy.Throttle:
		p.Class, p.Word = "delayed", "Not now"
	case policy.Error, policy.Allow:
		p.Class, p.Word = "error", "Failed"
	}
	p.URL, p.Rule = elide(p.URL, maxOnPage), elide(p.Rule, maxOnPage)
	for i, l := range p.problem.Lines {
		line := pageLine{shownLine: l, Gap: i > 0 && l.Line > p.problem.Lines[i-1].Line+1}
		switch {
		case l.Decides:
			line.Class = "hit"
		case strings.HasPrefix(strings.TrimSpace(l.Text), "#"):
			line.Class = "comment"
		}
		p.Lines = append(p.Lines, line)
	}
	if fetched := f.fetched(); !fetched.IsZero() {
		p.Age = about(time.Since(fetched))
	}
	return p
}

// maxOnPage bounds what is a paragraph on the page, in bytes.
const maxOnPage = 600

// maxInLead bounds the path in the sentence below the title, in bytes.
const maxInLead = 100

// lead returns the sentence below the title. It is empty if the title says the same.
func (r *refusal) lead(f *facts) string {
	switch {
	case r.Detail == classes[r.Reason].title+".":
		return ""
	case r.Reason != policy.ReasonRobots || f.Host == "":
		return elide(r.Detail, maxOnPage)
	}
	path, who := strings.TrimPrefix(f.URL, f.origin.String()), "the crawler "+f.Crawler
	if f.Crawler == "*" {
		who = "crawlers without a name"
	}
	if f.verdict.Line == 0 {
		path = "every path"
	}
	const sentence = "The robots.txt of %s disallows %s for %s, so this proxy did not ask for it."
	return fmt.Sprintf(sentence, f.Host, elide(path, maxInLead), who)
}

// step is something that the client can do: a sentence, which may end in a command or in the operator's address.
type step struct {
	Text    string // without the period
	Command string
	Contact string // of the operator
	ID      string // of the request
}

// String returns the sentence.
func (s step) String() string {
	if s.Command != "" {
		return s.Text + ": " + s.Command // a period would seem to be a part of it
	}
	text := s.Text
	if s.Contact != "" {
		text += ": " + s.Contact
	}
	if s.ID != "" {
		text += " (request " + s.ID + ")"
	}
	return text + "."
}

// Address returns the contact as it is written, without its scheme if it is a mail address.
func (s step) Address() string { return strings.TrimPrefix(s.Contact, "mailto:") }

// next returns what the client can do.
func (r *refusal) next(f *facts, id string) (steps []step) {
	say := func(text string) { steps = append(steps, step{Text: text}) }
	repeat := "Repeat the request later"
	if seconds := r.retryAfter(); seconds > 0 {
		repeat = "Repeat the request in " + about(time.Duration(seconds)*time.Second)
	}
	operator := "Questions about this proxy are for its operator"
	const exception = "An exception is the operator's to make"
	switch r.Reason {
	case policy.ReasonRobots, policy.ReasonUsage:
		if f.byHeader() {
			say("If the content should be open for this purpose, ask the site: the header of its response says how the content may be used")
			operator = exception
			break
		}
		say("If the page should be open, ask the site: its robots.txt says who may read it")
		steps = append(steps, f.explained()...)
		operator = exception
	case policy.ReasonTooComplex:
		say("Use a shorter URL, or a shorter User-Agent")
		steps = append(steps, f.explained()...)
		operator = exception
	case policy.ReasonRobotsUnreachable:
		say(repeat + ": until the robots.txt can be read, nothing of this site is fetched (RFC 9309 section 2.3.1.4)")
	case policy.ReasonPace, policy.ReasonBackoff:
		if r.Outcome == policy.Throttle {
			say(repeat)
			say("Send fewer requests to this host at once")
			break
		}
		operator = exception
	case policy.ReasonOverload:
		say(repeat)
		say("Send fewer requests at once")
	case policy.ReasonStopped:
		if r.RetryAfter > 0 {
			say(repeat + ", when the stop ends")
		} else {
			say("Wait until the operator ends the stop")
		}
		operator = exception
	case policy.ReasonPacingUnavailable, policy.ReasonAuditUnavailable, policy.ReasonInternal:
		say(repeat)
	case policy.ReasonUpstream:
		say(repeat + ": the proxy permits the request, and the site did not answer it")
	case policy.ReasonAuth:
		say("Send the user and the password in the URL of the proxy, as in http://USER:PASSWORD@HOST:PORT")
	case policy.ReasonEgress, policy.ReasonExemption, policy.ReasonHost, policy.ReasonIntercept, policy.ReasonIdentity:
		operator = exception
	case policy.ReasonBadRequest, policy.ReasonMisdirected, policy.ReasonLoop:
		say("Correct the request, or the configuration of the program that sent it")
	case policy.ReasonConnectionAuth:
		say("Sign in to the site by another scheme")
	}
	return append(steps, step{Text: operator, Contact: f.Contact, ID: id})
}

// maxCommand limits the URL of a command, in bytes. A longer one may not be whole.
const maxCommand = 512

// explained returns how to see which rules matched.
func (f *facts) explained() []step {
	if f.URL == "" || len(f.URL) > maxCommand {
		return nil
	}
	command := "robotsproxy check --explain " + shellWord(f.URL)
	switch {
	case f.dialect != rules.DialectRFC9309: // which may compare the whole User-Agent
		command += " --dialect " + f.dialect.String() + " -A " + shellWord(f.UserAgent)
	case f.Crawler != "*":
		command += " -A " + shellWord(f.Crawler)
	}
	if f.Purpose != "" {
		command += " --purpose " + f.Purpose
	}
	return []step{{Text: "To see how the decision was made, run", Command: command}}
}

// shellWord quotes s for a shell if it needs that.
func shellWord(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:/%+,@"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
