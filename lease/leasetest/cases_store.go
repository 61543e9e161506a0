package leasetest

import "github.com/leasehold-go/leasehold/lease"

var storeCases = []testCase{
	{
		name: "deleted-record-is-missing",
		explanation: "When a third party has deleted the record, the holder's renewal is refused as ErrMissing and brings nothing back; the name is free, " +
			"and the next token is higher all the same.",
		needs: deletion,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			k.remove(k.TB, k.backend, k.name("x"))
			_, err := k.backend.Renew(k.ctx, h.claim, long)
			k.wantError("Renew after the deletion", err, lease.ErrMissing)
			k.wantAbove(k.acquire(k.name("x"), long), h.claim.Token)
		},
	},
	{
		name:        "deleted-and-taken-is-taken",
		explanation: "When the record was deleted and another holds the name, the former holder can neither renew nor free it.",
		needs:       deletion,
		run: func(k *kit) {
			late := k.acquire(k.name("x"), long)
			k.remove(k.TB, k.backend, k.name("x"))
			h := k.acquire(k.name("x"), long)
			_, err := k.backend.Renew(k.ctx, late.claim, long)
			k.wantError("Renew of a name that another holds", err, lease.ErrTaken)
			k.wantError("Release of a name that another holds", k.backend.Release(k.ctx, late.claim), lease.ErrTaken)
			k.wantHeld(h)
		},
	},
	{
		name: "forgotten-lease-is-missing",
		explanation: "A store that has forgotten everything has forgotten the lease: its renewal is refused as ErrMissing, and works for nobody. A backend that " +
			"keeps its own idea of who holds what would go on believing.",
		needs: forgetting,
		run: func(k *kit) {
			h := k.acquire(k.name("x"), long)
			k.forget(k.TB, k.backend)
			_, err := k.backend.Renew(k.ctx, h.claim, long)
			k.wantError("Renew after the store forgot", err, lease.ErrMissing)
			k.wantFree(k.name("x"))
		},
	},
	{
		name: "tokens-rise-over-forgetting",
		explanation: "A backend that says TokensSurvive grants higher tokens even after its store has forgotten everything. One that does not say so " +
			"may not, and then this is skipped.",
		needs: forgetting,
		run: func(k *kit) {
			if !k.backend.Info().TokensSurvive {
				k.Skip("Info().TokensSurvive is false")
			}
			var last lease.Token
			for range 5 {
				last = k.wantAbove(k.acquire(k.name("x"), long), last)
				k.forget(k.TB, k.backend)
			}
		},
	},
	{
		name:        "a-second-client-sees-the-same",
		explanation: "Two clients of one store exclude each other, and a claim is a value: it is good through either.",
		needs:       second,
		run: func(k *kit) {
			other := k.second(k.TB, k.backend)
			h := k.acquire(k.name("x"), long)
			k.wantHeldThrough(other, h)
			if _, err := other.Renew(k.ctx, h.claim, long); err != nil {
				k.Fatalf("Renew through the second client: got error %v, want nil", err)
			}
			if err := other.Release(k.ctx, h.claim); err != nil {
				k.Fatalf("Release through the second client: got error %v, want nil", err)
			}
			next, err := k.tryRequest(other, lease.Request{Name: k.name("x"), Owner: k.owner(), TTL: long})
			if err != nil {
				k.Fatalf("Acquire through the second client: got error %v, want the lease", err)
			}
			k.wantAbove(next, h.claim.Token)
			k.wantHeld(next)
		},
	},
}
