package leasetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/lease"
)

// bites names for each bug a case that must find it. Others may find it too.
var bites = map[string]string{
	"validates nothing":                  "bad-requests-are-invalid",
	"looks at no ctx":                    "cancelled-acquire-takes-nothing",
	"names are folded":                   "names-are-independent",
	"names are trimmed":                  "odd-names-are-independent",
	"names are cut":                      "longest-names",
	"acquire loses to itself":            "repeated-acquire-returns-the-same-grant",
	"repeat gets a new token":            "repeated-acquire-returns-the-same-grant",
	"repeat keeps the old expiry":        "repeated-acquire-runs-the-full-ttl",
	"owners compare by prefix":           "owners-compare-whole",
	"refused tries extend":               "refused-tries-do-not-extend",
	"refusal is a timeout":               "refusal-is-a-held-error",
	"tells of the asker":                 "refusal-tells-the-holder-truly",
	"expiry is ignored":                  "lease-runs-its-ttl-and-no-longer",
	"renew revives":                      "expired-lease-cannot-be-renewed",
	"renew creates":                      "renew-never-creates",
	"renew adds":                         "renew-never-adds",
	"renew shortens":                     "renew-never-shortens",
	"repeat shortens":                    "repeated-acquire-never-shortens",
	"renew tells what is left":           "renew-resets-the-lease",
	"renew checks no owner":              "renew-needs-the-owner",
	"renew checks no token":              "renew-needs-the-token",
	"renew raises the token":             "token-is-constant",
	"release checks no owner":            "release-is-refused-when-taken",
	"release checks no token":            "release-needs-the-token",
	"release after expiry is refused":    "release-is-exact-when-nobody-came",
	"release of a missing record is nil": "release-is-refused-when-others-came-and-went",
	"release resets the token":           "tokens-rise-over-release",
	"expiry resets the token":            "tokens-rise-over-expiry",
	"tokens begin at 0":                  "tokens-are-in-bounds",
	"withdrawal is refused":              "withdraw-frees-what-the-owner-holds",
	"withdrawal frees anybody":           "withdraw-spares-others",
	"looks, then takes":                  "concurrent-acquire-has-one-winner",
	"claims that tokens survive":         "tokens-rise-over-forgetting",

	"last come, first served":         "waiters-are-served-in-order",
	"one line for all names":          "lines-are-independent",
	"tries overtake":                  "tries-do-not-overtake",
	"tries overtake at expiry":        "tries-do-not-overtake-at-expiry",
	"tells waiters nothing":           "waiter-is-told-of-the-holder",
	"hands over for the full TTL":     "release-hands-over",
	"hands over under the same token": "release-hands-over",
	"serves two":                      "concurrent-releases-hand-over-once",
	"looks at the first end only":     "handed-over-lease-expires",
	"withdrawal serves nobody":        "withdrawal-hands-over",
	"who gives up stays in line":      "cancelled-waiter-leaves",
	"who gives up keeps the lease":    "grant-and-cancellation-at-once",
	"deletion strands the line":       "deleted-record-lets-the-line-move",
}

// storeOptions lets every case run on a store.
func storeOptions() []Option {
	return []Option{
		WithDelete(func(_ testing.TB, b lease.Backend, name string) { b.(*store).remove(name) }),
		WithForget(func(_ testing.TB, b lease.Backend) { b.(*store).forget() }),
		WithSecond(func(_ testing.TB, first lease.Backend) lease.Backend { return first }),
	}
}

func TestRun_FindsEachBug(t *testing.T) {
	for bug, want := range bites {
		t.Run(strings.ReplaceAll(bug, ",", ""), func(t *testing.T) {
			c := caseNamed(t, want)
			v := judge(t, c, func() lease.Backend { return newStore(bug) }, storeOptions()...)
			if !v.failed {
				t.Fatalf("a backend where %q passes case %s", bug, want)
			}
			if !strings.Contains(v.log, c.explanation) {
				t.Errorf("the failure does not give its rule:\n%s", v.log)
			}
		})
	}
}

func TestRun_PassesWithoutABug(t *testing.T) {
	for _, c := range allCases() {
		t.Run(c.name, func(t *testing.T) {
			v := judge(t, c, func() lease.Backend { return newStore("") }, storeOptions()...)
			if v.failed || v.skipped && c.name != "tokens-rise-over-forgetting" {
				t.Errorf("failed: %v, skipped: %v\n%s", v.failed, v.skipped, v.log)
			}
		})
	}
}

func TestRun_SkipsWithoutOptions(t *testing.T) {
	for _, c := range allCases() {
		if got := c.needs.options(settings{}); (got != "") != (c.needs&^queue != 0) {
			t.Errorf("%s needs %b, but without options it says %q", c.name, c.needs, got)
		}
		if !c.needs.has(queue) || c.needs != queue {
			continue
		}
		v := judge(t, c, func() lease.Backend { return WithoutQueue(newStore("")) })
		if !v.skipped || !strings.Contains(v.log, "lease.Queuer") {
			t.Errorf("%s on a backend without a queue: skipped: %v\n%s", c.name, v.skipped, v.log)
		}
	}
}

func TestCases_AreWellFormed(t *testing.T) {
	var names []string
	for _, c := range allCases() {
		if slices.Contains(names, c.name) {
			t.Errorf("two cases are named %s", c.name)
		}
		names = append(names, c.name)
		if c.name == "" || c.run == nil || !strings.HasSuffix(c.explanation, ".") {
			t.Errorf("case %q lacks its name, its function, or a sentence of explanation", c.name)
		}
	}
}

func caseNamed(t *testing.T, name string) testCase {
	t.Helper()
	for _, c := range allCases() {
		if c.name == name {
			return c
		}
	}
	t.Fatalf("no case is named %s", name)
	return testCase{}
}
