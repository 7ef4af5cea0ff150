package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/config"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
	"github.com/robotsproxy/robotsproxy/internal/clientenv"
	"github.com/robotsproxy/robotsproxy/internal/requestlog"
	"github.com/robotsproxy/robotsproxy/internal/sampleweb"
	"github.com/robotsproxy/robotsproxy/internal/settings"
)

func newDemo(std stdio) *cobra.Command {
	d := &demo{std: std}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the proxy at work: sample sites, a crawl of them, and the dashboard",
		Long: `Show the proxy at work, without a configuration and without the internet. The demo runs sample sites, a proxy
with its dashboard, both on free ports of 127.0.0.1, and three crawlers that ignore robots.txt. After the first crawl it
prints a summary and commands to try. The crawl then goes on slowly, until an interrupt.

All data is in a temporary folder, which is removed at the end. A proxy that runs already, its data and the certificates
that this machine trusts are not touched. The proxy of the demo reaches the sample sites only.`,
		Example: `  robotsproxy demo
  robotsproxy demo --once      end after the first crawl, with its summary`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	cmd.Flags().BoolVar(&d.once, "once", false, "end after the first crawl, with its summary")
	cmd.Flags().BoolVar(&d.open, "open", false, "open the dashboard in a browser")
	cmd.Flags().BoolVar(&d.keep, "keep", false, "keep the data folder at the end")
	return cmd
}

// demo is a proxy, sites that it reaches and crawlers that use it.
type demo struct {
	std              stdio
	once, open, keep bool
	dir              string // the data folder
	service          *service
}

// demoCrawlers are the crawlers, with the sites that they visit.
var demoCrawlers = []struct {
	userAgent string
	sites     []string // if nil, all
}{
	{"NewsBot/2.1 (+https://newsbot.example/about)", []string{
		"http://news.example/", "http://docs.example/", "http://old.example/", "http://slow.example/", "http://wire.example/",
	}},
	{"PriceWatch/1.4 (+https://pricewatch.example/bot)", []string{
		"http://news.example/", "http://shop.example/", "https://bank.example/", "http://api.example/",
		"http://wall.example/",
	}},
	{"ArchiveBot/3.0 (+https://archivebot.example/)", nil},
}

// demoPause is the time between two requests of each crawler after the first crawl.
const demoPause = 3 * time.Second

func (d *demo) run(ctx context.Context) (err error) {
	// Before there is a folder to remove. A terminal that is closed ends the demo too.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	drain, abort, release := stopSignals(ctx)
	defer release()
	web, err := sampleweb.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, web.Close()) }()
	if d.dir, err = os.MkdirTemp("", "robotsproxy-demo-"); err != nil {
		return fmt.Errorf("making the data folder of the demo: %w", err)
	}
	defer func() { err = errors.Join(err, d.clean()) }()
	early := &heldWriter{to: d.std.err}
	defer early.release("")
	if err := d.start(web.URL(), early); err != nil {
		return err
	}
	early.release(d.banner())
	return d.serve(drain, abort)
}

// serve serves and crawls until drain ends, or, with --once, to the end of the first crawl.
func (d *demo) serve(drain, abort context.Context) error {
	if d.open {
		go d.openDashboard()
	}
	ctx, end := context.WithCancel(drain)
	var crawl sync.WaitGroup
	crawl.Go(func() {
		d.crawl(ctx)
		if d.once {
			end()
		}
	})
	err := d.service.run(ctx, abort)
	end()
	crawl.Wait()
	return err
}

// start writes a configuration that reaches the sites at web, and opens the listeners.
func (d *demo) start(web string, early *heldWriter) error {
	path := filepath.Join(d.dir, "robotsproxy.yaml")
	if err := os.WriteFile(path, []byte(demoConfig(web, time.Now())), 0o600); err != nil {
		return fmt.Errorf("writing the configuration of the demo: %w", err)
	}
	read := func() (*config.Config, []settings.Warning, error) { return config.Load(config.Options{Path: path}) }
	cfg, _, err := read()
	if err != nil {
		return err
	}
	if d.service, err = newService(cfg, d.std.err, early, &sockets{}); err != nil {
		return err
	}
	d.service.configFile, d.service.readConfig = path, read
	return nil
}

// demoConfig returns the configuration of the demo. Every name has an address, so that the proxy asks no DNS server.
func demoConfig(web string, now time.Time) string {
	return fmt.Sprintf(`# The configuration of robotsproxy demo, which reaches the sample sites only.
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0}
data_dir: .
egress:
  upstream_proxy: %s
  resolve: {"*": 127.0.0.1}
  allow_addresses: [127.0.0.1]
  insecure_hosts: ["*"]
pacing: {max_wait: 20s}
limits: {connections: 1000}
robots: {error_ttl: 10s}
hosts:
  - {host: lab.example, mode: report}
exemptions:
  - {host: shop.example, path: /prices, effect: allow, reason: the shop agreed, owner: demo@robotsproxy.example,
     until: %s}
log: {format: text}
grace: 1s
`, web, now.AddDate(0, 1, 0).UTC().Format(time.DateOnly))
}

// crawl lets all crawlers visit their sites, prints a report, and lets them go on slowly until ctx ends.
func (d *demo) crawl(ctx context.Context) {
	client := d.client()
	defer client.CloseIdleConnections()
	var first, later sync.WaitGroup
	for _, c := range demoCrawlers {
		sites := c.sites
		if sites == nil {
			sites = demoSites()
		}
		crawler := sampleweb.Crawler{UserAgent: c.userAgent, Client: client, Pause: demoPause / 10}
		first.Add(1)
		later.Go(func() {
			pages := crawler.Crawl(ctx, sites)
			first.Done()
			if !d.once {
				crawler.Revisit(ctx, pages, demoPause)
			}
		})
	}
	first.Wait()
	if ctx.Err() == nil {
		d.report(ctx)
	}
	later.Wait()
}

// demoSites returns the first pages of all sites.
func demoSites() (pages []string) {
	for _, site := range sampleweb.Sites() {
		pages = append(pages, site.URL)
	}
	return pages
}

// client returns the client of the crawlers.
func (d *demo) client() *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(d.service.components.ca.PEM())
	proxyURL := &url.URL{Scheme: "http", Host: d.proxyAddress()}
	return &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyURL(proxyURL), TLSClientConfig: &tls.Config{RootCAs: roots}},
		Timeout:   time.Minute,
		// A crawler visits redirected pages as it visits others.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (d *demo) proxyAddress() string { return d.service.proxyListener.Addr().String() }

func (d *demo) dashboard() string { return "http://" + d.service.adminListener.Addr().String() + "/" }

// banner returns the text before the crawl.
func (d *demo) banner() string {
	var sites strings.Builder
	for _, site := range sampleweb.Sites() {
		fmt.Fprintf(&sites, "  %-21s  %s\n", site.URL, site.About)
	}
	end := "removed at the end"
	if d.keep {
		end = "kept at the end"
	}
	return fmt.Sprintf(`robotsproxy demo: sample sites, impolite crawlers, and the proxy between them.

  dashboard  %s
  proxy      http://%s
  data       %s   (%s)
  token      %s   (for changes in the dashboard)

The sites, and what each does:

%s
The first crawl takes about 10 s. A line for each new refusal:

`, d.dashboard(), d.proxyAddress(), d.dir, end, d.service.token, &sites)
}

// report prints the summary of the first crawl, and commands to try.
func (d *demo) report(ctx context.Context) {
	d.awaitRecords(ctx)
	fmt.Fprintln(d.std.err)
	sums := auditview.Sums{Records: d.service.components.kept, Out: d.std.out, Options: auditview.Options{
		Format: auditview.Table, Width: columns(d.std.out), Colour: hasColour(d.std.out), Zone: time.Local, Now: time.Now(),
	}}
	_, err := sums.Summarize(ctx, auditview.Summary{By: []audit.Dimension{audit.ByHost}})
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(d.std.err, "robotsproxy:", err)
	}
	if !d.once {
		d.service.requests.SetMode(requestlog.Off) // so that the hints stay in sight
		_, _ = io.WriteString(d.std.err, d.hints())
	}
}

// awaitRecords waits until all records of the crawl are written.
func (d *demo) awaitRecords(ctx context.Context) {
	for d.service.components.records.Stats().Waiting > 0 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
}

func (d *demo) hints() string {
	self, proxy, dir := selfCommand(), "http://"+d.proxyAddress(), clientenv.Quote(d.dir)
	return fmt.Sprintf(`
Try it, in another shell:

  curl -x %[2]s http://news.example/today            allowed
  curl -x %[2]s http://news.example/private/drafts   refused, with the line
  %[1]s audit list --decision deny --data-dir %[3]s
  %[1]s stop shop.example --reason "a test" --data-dir %[3]s

And with a crawler of yours, in the real web: %[1]s run -- COMMAND

The crawl goes on slowly, without lines here: see %[4]s
^C ends the demo.

`, self, proxy, dir, d.dashboard())
}

// openDashboard opens the dashboard in the user's browser, or says that it cannot.
func (d *demo) openDashboard() {
	name := "xdg-open"
	if runtime.GOOS == "darwin" {
		name = "open"
	}
	if err := exec.Command(name, d.dashboard()).Run(); err != nil {
		fmt.Fprintf(d.std.err, "robotsproxy: %s cannot open the dashboard (%v): open %s yourself\n\n",
			name, err, d.dashboard())
	}
}

// clean removes the data folder, unless the user keeps it.
func (d *demo) clean() error {
	if d.keep {
		fmt.Fprintf(d.std.err, "robotsproxy: the data of the demo is kept: %s audit --data-dir %s\n",
			selfCommand(), clientenv.Quote(d.dir))
		return nil
	}
	if err := os.RemoveAll(d.dir); err != nil {
		return fmt.Errorf("removing the data folder of the demo: %w", err)
	}
	fmt.Fprintf(d.std.err, "robotsproxy: the demo has ended, and %s is removed\n", d.dir)
	return nil
}
