package props

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mutant is a known mistake: text of one source file of the product, replaced.
type mutant struct {
	name     string
	dir      string   // of the package, under the module's root
	old, new string   // old occurs exactly once
	property string   // TestProps_Wild unless set
	caught   []string // by one of these invariants
}

// trustBroken is what finds trust that is counted wrongly.
var trustBroken = []string{"TrustWithinRecord", "TrustCounted"}

var mutants = []mutant{
	{
		name: "trust counts from the reply", dir: "renewal",
		old:    "s.plan.confirmed(r.sent, ",
		new:    "s.plan.confirmed(now, ",
		caught: trustBroken,
	},
	{
		name: "trust of the first grant counts from its arrival", dir: "mutex",
		old:    "return c.confirm(ctx, won{c.req, grant, sent}, parked)",
		new:    "_ = sent\n\treturn c.confirm(ctx, won{c.req, grant, c.st.clk.Now()}, parked)",
		caught: trustBroken,
	},
	{
		name: "no margin", dir: "lease",
		old:      "return sent.Add(ttl - Margin(ttl))",
		new:      "return sent.Add(ttl)",
		property: "Calm",
		caught:   trustBroken,
	},
	{
		name: "a late renewal shortens the record", dir: "backends/memory",
		old:      "end := now.Add(ttl); end.After(r.expires)",
		new:      "end := now.Add(ttl); true",
		property: "Network",
		caught:   []string{"TrustWithinRecord", "OnlyOwnersRecord"},
	},
	{
		name: "a renewal goes on while the delete is sent", dir: "renewal",
		old:      "\ts.calls.hangUp()\n",
		new:      "",
		property: "Network",
		caught:   []string{"EndBeforeDelete", "NothingLeft"},
	},
	{
		name: "the delete is sent before the end", dir: "renewal",
		old:    "\ts.stop(release)\n",
		new:    "\t_ = s.release(ctx)\n\ts.stop(release)\n",
		caught: []string{"EndBeforeDelete", "NoCallsAfterEnd"},
	},
	{
		name: "Lost waits for a call that hangs", dir: "renewal",
		old:      "case !now.Before(end):",
		new:      "case !p.busy && !now.Before(end):",
		property: "Network",
		caught:   []string{"LostOnTime", "MaxHold"},
	},
	{
		name: "a late reply revives the lease", dir: "renewal",
		old:      "s.plan.failing\n\tact := s.plan.next(now)\n",
		new:      "s.plan.failing\n\tact := action{}\n",
		property: "Pauses",
		caught:   []string{"LostOnTime"},
	},
	{
		name: "renewals keep a fixed cadence, and make up for missed ones", dir: "renewal",
		old:      "p.due = sent.Add(in - ",
		new:      "if d := p.due.Add(in * 9 / 10); !p.due.IsZero() && d.Before(sent) {\n\t\tp.due = d\n\t\treturn\n\t}\n\tp.due = sent.Add(in - ",
		property: "Pauses",
		caught:   []string{"Pacing"},
	},
	{
		name: "no distance between retries", dir: "renewal",
		old:      "return max(gap, minGap(p.granted))",
		new:      "return time.Nanosecond",
		property: "Network",
		caught:   []string{"Pacing"},
	},
	{
		name: "retries as far apart as renewals", dir: "renewal",
		old:      "gap := left / 8",
		new:      "gap := left",
		property: "Network",
		caught:   []string{"ThreeTries"},
	},
	{
		name: "the bell is not stopped at the end", dir: "renewal",
		old:    "\t\ts.bell.Stop()\n",
		new:    "",
		caught: []string{"NothingLeft"},
	},
	{
		name: "Context is not cancelled on loss", dir: "lease",
		old:    "if c.cancel != nil {",
		new:    "if c.cancel != nil && state == Released {",
		caught: []string{"SignalsAgree"},
	},
	{
		name: "Lost is closed by a release", dir: "lease",
		old:    "if state == Lost && c.lost != nil {",
		new:    "if c.lost != nil {",
		caught: []string{"SignalsAgree"},
	},
	{
		name: "observers before signals", dir: "renewal",
		old:    "\ts.End(state, err)\n",
		new:    "\tlease.Notify(s.cfg.Observer.Lost, lease.Event{Name: s.Name(), Token: s.Token()})\n\ts.End(state, err)\n",
		caught: []string{"SignalsAgree"},
	},
	{
		name: "strict renewal is forgotten", dir: "renewal",
		old:      "case s.cfg.Strict:",
		new:      "case false:",
		property: "Network",
		caught:   []string{"StrictLoses"},
	},
	{
		name: "longest hold is forgotten", dir: "renewal",
		old:      "case !p.maxHold.IsZero() && p.maxHold.Before(p.trust):",
		new:      "case false:",
		property: "Calm",
		caught:   []string{"MaxHold"},
	},
	{
		name: "a dropped handle is renewed for ever", dir: "renewal",
		old:      "case p.abandoned:\n\t\treturn action{verb: lose, reason: lease.Abandoned}\n",
		new:      "",
		property: "Losses",
		caught:   []string{"Abandonment", "NothingLeft", "Liveness"},
	},
	{
		name: "two deletes for two releases", dir: "renewal",
		old:    "if c.settled {",
		new:    "if false {",
		caught: []string{"NoCallsAfterEnd"},
	},
	{
		name: "an unknown attempt is not withdrawn", dir: "mutex",
		old:      "if c.loose {",
		new:      "if false {",
		property: "Network",
		caught:   []string{"WithdrawnOnce", "GivenBack"},
	},
	{
		name: "a grant from the queue is not confirmed", dir: "mutex",
		old:    "parked := c.told > told\n",
		new:    "parked := false\n\t_ = told\n\tsent = c.st.clk.Now()\n",
		caught: trustBroken,
	},
	{
		name: "WithWait is forgotten in the queue", dir: "mutex",
		old:      "if !c.try && c.st.wait > 0 {",
		new:      "if !c.try && c.st.wait > 0 && c.l.queue == nil {",
		property: "Calm",
		caught:   []string{"WaitBounded"},
	},
	{
		name: "renewals may be late", dir: "renewal",
		old:      "p.due = sent.Add(in - ",
		new:      "p.due = sent.Add(in + ",
		property: "Calm",
		caught:   []string{"RenewedOnTime"},
	},
	{
		name: "Close does not wait for what is given back", dir: "mutex",
		old:    "\tl.calls.Wait()\n",
		new:    "",
		caught: []string{"NothingLeft"},
	},
	{
		name: "a renewal that the store refuses is tried again", dir: "renewal",
		old:      "case errors.Is(r.err, lease.ErrNotOwner):",
		new:      "case false:",
		property: "Losses",
		caught:   []string{"RefusedIsLost", "NoCallsAfterEnd"},
	},
	{
		name: "a release that was refused counts as done", dir: "renewal",
		old:      "case errors.Is(err, lease.ErrNotOwner):\n\t\treturn &lease.LostError{",
		new:      "case errors.Is(err, lease.ErrNotOwner):\n\t\treturn nil\n\tcase false:\n\t\treturn &lease.LostError{",
		property: "Losses",
		caught:   []string{"ReleaseExact"},
	},
	{
		name: "a delete whose reply was lost is not remembered", dir: "renewal",
		old:      "c.ambiguous = c.ambiguous || trusted",
		new:      "_ = trusted",
		property: "Network",
		caught:   []string{"ReleaseExact"},
	},
	{
		name: "a waiter looks too late for a holder that is gone", dir: "backends/memory",
		old:      "bell.Set(now.Holder.Remaining)",
		new:      "bell.Set(100 * now.Holder.Remaining)",
		property: "Losses",
		caught:   []string{"Liveness"},
	},
	{
		name: "tokens are the time, and nothing more", dir: "backends/memory",
		old:      "token := max(b.last+1, lease.Token(max(now.UnixMicro(), 0)))",
		new:      "token := lease.Token(max(now.UnixMicro(), 0))",
		property: "Calm",
		caught:   []string{"TokensIncrease"},
	},
	{
		name: "a foreign claim counts", dir: "backends/memory",
		old:    "case r.owner != claim.Owner || r.token != claim.Token:",
		new:    "case false:",
		caught: []string{"OnlyOwnersRecord", "TrustWithinRecord"},
	},
	{
		name: "a renewal creates the record that is missing", dir: "backends/memory",
		old: "\tr, err := b.ownedLocked(now, claim)\n\tif err != nil {\n",
		new: "\tr, err := b.ownedLocked(now, claim)\n\tif errors.Is(err, lease.ErrMissing) {\n" +
			"\t\tr = &record{owner: claim.Owner, token: claim.Token}\n\t\tb.records[claim.Name] = r\n\t} else if err != nil {\n",
		property: "Losses",
		caught:   []string{"OnlyOwnersRecord", "TrustWithinRecord"},
	},
	{
		name: "a waiter that was granted the lease and leaves forgets it", dir: "backends/memory",
		old:      "b.withdrawLocked(b.clk.Now(), lease.Claim{Name: w.req.Name, Owner: w.req.Owner})",
		new:      "if r := b.records[w.req.Name]; r != nil {\n\t\tr.queue = slices.DeleteFunc(r.queue, func(o *waiter) bool { return o == w })\n\t}",
		property: "Network",
		caught:   []string{"GivenBack"},
	},
	{
		name: "an owner's second attempt is refused", dir: "backends/memory",
		old:    "case r.owner == req.Owner:",
		new:    "case false:",
		caught: []string{"OnlyOwnersRecord", "TrustWithinRecord"},
	},
	{
		name: "last come, first served", dir: "backends/memory",
		old:      "\tw := r.queue[0]\n\tr.queue[0] = nil\n\tr.queue = r.queue[1:]\n",
		new:      "\tw := r.queue[len(r.queue)-1]\n\tr.queue = r.queue[:len(r.queue)-1]\n",
		property: "Calm",
		caught:   []string{"FirstComeFirstServed"},
	},
	{
		name: "a release hands nothing over", dir: "backends/memory",
		old:      "b.freed.add(name, r.token)\n\tif len(r.queue) == 0 {",
		new:      "b.freed.add(name, r.token)\n\tif true {",
		property: "Calm",
		caught:   []string{"FirstComeFirstServed"},
	},
}

const inMutant = "LEASEHOLD_PROPS_MUTANT"

// The properties find each of the mistakes, by the invariant that is meant to.
func TestMutants(t *testing.T) {
	if testing.Short() || os.Getenv(inMutant) != "" {
		t.Skip("builds the product once for each mistake")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := runProperties(t, "", "^TestProps_(Calm|Pauses|Network|Losses|Wild)$"); err != nil {
		t.Fatalf("the product as it is: %v\n%s", err, tail(out))
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			property := m.property
			if property == "" {
				property = "Wild"
			}
			out, err := runProperties(t, m.overlay(t, root), "^TestProps_"+property+"$")
			if err == nil {
				t.Fatal("it survives")
			}
			found := breachPattern.FindStringSubmatch(out)
			if found == nil {
				t.Fatalf("it fails, but by no invariant:\n%s", tail(out))
			}
			if !slices.Contains(m.caught, found[1]) {
				t.Fatalf("it is caught by %s, want one of %v:\n%s", found[1], m.caught, tail(out))
			}
			t.Logf("caught by %s, %s", found[1], afterPattern.FindString(out))
		})
	}
}

var (
	breachPattern = regexp.MustCompile(`invariant (\w+):`)
	afterPattern  = regexp.MustCompile(`after \d+ tests`)
)

// overlay writes the patched file and the overlay that puts it in the place of the original.
func (m mutant) overlay(t *testing.T, root string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(m.dir), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var original, text string
	places := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), m.old); n > 0 && !strings.HasSuffix(file, "_test.go") {
			original, text, places = file, string(b), places+n
		}
	}
	if places != 1 {
		t.Fatalf("package %s has %d places that read %q, want 1: adapt the mutant to the source", m.dir, places, m.old)
	}
	dir := t.TempDir()
	patched := filepath.Join(dir, filepath.Base(original))
	if err := os.WriteFile(patched, []byte(strings.Replace(text, m.old, m.new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: patched}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// runProperties runs properties of this package, built with an overlay unless it is "".
func runProperties(t *testing.T, overlay, run string) (string, error) {
	t.Helper()
	args := []string{"test", "-vet=off", "-count=1", "-timeout=2m", "-run", run}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	args = append(args, ".", "-rapid.checks=1500", "-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=0s")
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), inMutant+"=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func tail(out string) string {
	const most = 4000
	return out[max(0, len(out)-most):]
}
