package leasetest

import (
	"errors"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

var heldCases = []testCase{
	{
		name: "refusal-is-a-held-error",
		explanation: "A refused attempt returns *HeldError with the name and whatever is known of the holder, and no context error: contention, " +
			"cancellation and trouble with the store are told apart.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			_, err := k.try(k.name("x"), k.owner(), long)
			k.checkRefusal(err)
			var refusal *lease.HeldError
			if !errors.As(err, &refusal) {
				k.Fatalf("got error of type %T, want *lease.HeldError", err)
			}
			if refusal.Name != k.name("x") {
				k.Errorf("HeldError.Name: got %q, want %q as the caller wrote it", refusal.Name, k.name("x"))
			}
			if refusal.Waited != 0 || refusal.Cause != nil {
				k.Errorf("a single try: got HeldError with Waited %v and Cause %v, want none", refusal.Waited, refusal.Cause)
			}
			k.wantHeld(h)
		},
	},
	{
		name: "refusal-tells-the-holder-truly",
		explanation: "What a refusal tells of the holder is its token, its label byte for byte, and what is left of its lease. A backend may leave " +
			"out what it does not know, but must not tell of anybody else.",
		run: func(k *kit) {
			labels := []string{"", "pod 7\nzone {b}", "\x00\xff|:,", strings.Repeat("l", lease.MaxLabelBytes)}
			for _, label := range labels {
				h, err := k.tryRequest(k.backend, lease.Request{Name: k.name("x"), Owner: k.owner(), Label: label, TTL: k.ttl})
				if err != nil {
					k.Fatalf("Acquire with label %.20q: got error %v, want the lease", label, err)
				}
				k.sleep(k.ttl / 4)
				k.wantHeld(h)
				k.release(h)
			}
		},
	},
	{
		name: "refused-tries-do-not-extend",
		explanation: "An attempt that is refused changes nothing: not the holder's token, and not its expiry, whatever TTL the attempt asked for. " +
			"Or a crowd of pollers keeps a dead holder alive.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), k.ttl)
			for range 4 {
				k.sleep(k.ttl / 8)
				k.wantHeld(h) // tries for a much longer TTL
			}
			k.renewedToSameEnd(h)
			k.pastEnd(h)
			k.wantFree(k.name("x"))
		},
	},
	{
		name:        "refused-tries-leave-nothing",
		explanation: "A refused attempt leaves no trace: when the name is free again, nobody is favoured, and the one who was refused has no claim on it.",
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			refused := k.owner()
			_, err := k.try(k.name("x"), refused, long)
			k.checkRefusal(err)
			k.release(h)
			k.settle()
			next := k.acquire(k.name("x"), long)
			_, err = k.try(k.name("x"), refused, long)
			k.checkRefusal(err)
			k.wantHeld(next)
		},
	},
}

// renewedToSameEnd checks that h's token is still good, by a renewal that leaves h's end about where it was.
func (k *kit) renewedToSameEnd(h *held) {
	k.Helper()
	k.renewed(h, max(lease.MinTTL, h.from.Sub(k.now()).Truncate(time.Millisecond)))
}
