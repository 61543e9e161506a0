package leasetest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

var requestCases = []testCase{
	{
		name: "info-is-stable",
		explanation: "Info always returns the same and names the backend: callers ask once, at the start, and decide by the answer " +
			"whether they may rely on it across processes.",
		run: func(k *kit) {
			first := k.backend.Info()
			if first.Name == "" {
				k.Errorf("Info().Name is empty, want what errors and logs call the backend")
			}
			k.release(k.acquire(k.name("x"), long))
			if got := k.backend.Info(); got != first {
				k.Errorf("Info: got %+v, before it was %+v", got, first)
			}
		},
	},
	{
		name: "bad-requests-are-invalid",
		explanation: "A request out of bounds matches ErrInvalid and nothing else, and takes nothing: a TTL of 0 that becomes \"no expiry\" " +
			"locks a name for ever, and an owner with a space can forge a record. Request.Validate does the check.",
		run: func(k *kit) {
			for what, req := range k.badRequests() {
				_, err := k.backend.Acquire(k.ctx, req)
				k.checkInvalid("Acquire", what, err)
			}
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "bad-waits-are-invalid",
		explanation: "Wait has the same bounds as Acquire. A bad request must fail at once: it would otherwise block until its " +
			"ctx ends, on a name that it can never have.",
		needs: queue,
		run: func(k *kit) {
			for what, req := range k.badRequests() {
				_, err := k.queuer().Wait(k.ctx, req, nil)
				k.checkInvalid("Wait", what, err)
			}
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "ttl-bounds-are-granted",
		explanation: "The shortest and the longest TTL are granted, and the grant says how long it runs: never longer than asked for, so that " +
			"trust counted from it is safe. An instant in 100 years must not overflow into the past.",
		run: func(k *kit) {
			for _, ttl := range []time.Duration{lease.MinTTL, 1999500 * time.Microsecond, lease.MaxTTL} {
				h := k.acquire(k.name(ttl.String()), ttl)
				if ttl >= time.Second {
					k.wantHeld(h)
				}
				k.release(h)
			}
		},
	},
	{
		name: "cancelled-acquire-takes-nothing",
		explanation: "A call whose ctx has ended already sends nothing, and its error matches ctx's: the caller is gone and would never " +
			"release what it got.",
		run: func(k *kit) {
			ctx, cancel := context.WithCancel(k.ctx)
			cancel()
			_, err := k.backend.Acquire(ctx, lease.Request{Name: k.name("x"), Owner: k.owner(), TTL: long})
			k.wantError("Acquire with a cancelled ctx", err, context.Canceled)
			if errors.Is(err, lease.ErrHeld) {
				k.Errorf("error %v matches ErrHeld, but nobody holds the name", err)
			}
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "expired-ctx-is-deadline-exceeded",
		explanation: "A ctx whose deadline is over gives context.DeadlineExceeded, from every method that can still fail, and never a refusal: " +
			"a refusal would say that the store was asked.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			ctx, cancel := context.WithDeadline(k.ctx, time.Unix(0, 0))
			defer cancel()
			_, err := k.backend.Acquire(ctx, lease.Request{Name: k.name("x"), Owner: k.owner(), TTL: long})
			k.wantError("Acquire after the deadline", err, context.DeadlineExceeded)
			_, err = k.backend.Renew(ctx, h.claim, long)
			k.wantError("Renew after the deadline", err, context.DeadlineExceeded)
			k.wantHeld(h)
		},
	},
}

// badRequests returns requests with one fault each, by fault.
func (k *kit) badRequests() map[string]lease.Request {
	good := lease.Request{Name: k.name("x"), Owner: k.owner(), TTL: long}
	bad := func(spoil func(r *lease.Request)) lease.Request {
		r := good
		spoil(&r)
		return r
	}
	return map[string]lease.Request{
		"an empty name":            bad(func(r *lease.Request) { r.Name = "" }),
		"a name too long":          bad(func(r *lease.Request) { r.Name = strings.Repeat("x", lease.MaxNameBytes+1) }),
		"an empty owner":           bad(func(r *lease.Request) { r.Owner = "" }),
		"an owner with a space":    bad(func(r *lease.Request) { r.Owner = "job 1" }),
		"an owner with a newline":  bad(func(r *lease.Request) { r.Owner = "job\n1" }),
		"an owner too long":        bad(func(r *lease.Request) { r.Owner = strings.Repeat("x", lease.MaxOwnerBytes+1) }),
		"a label too long":         bad(func(r *lease.Request) { r.Label = strings.Repeat("x", lease.MaxLabelBytes+1) }),
		"a TTL of 0":               bad(func(r *lease.Request) { r.TTL = 0 }),
		"a TTL of -1 ns":           bad(func(r *lease.Request) { r.TTL = -1 }),
		"a TTL of 999 µs":          bad(func(r *lease.Request) { r.TTL = 999 * time.Microsecond }),
		"a TTL below the least":    bad(func(r *lease.Request) { r.TTL = lease.MinTTL - 1 }),
		"a TTL above the greatest": bad(func(r *lease.Request) { r.TTL = lease.MaxTTL + 1 }),
		"the largest Duration":     bad(func(r *lease.Request) { r.TTL = 1<<63 - 1 }),
	}
}

func (k *kit) checkInvalid(call, what string, err error) {
	k.Helper()
	if !errors.Is(err, lease.ErrInvalid) {
		k.Errorf("%s with %s: got error %v, want one that matches ErrInvalid", call, what, err)
	}
	if errors.Is(err, lease.ErrHeld) {
		k.Errorf("%s with %s: error %v matches ErrHeld", call, what, err)
	}
}
