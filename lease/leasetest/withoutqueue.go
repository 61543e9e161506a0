package leasetest

import "github.com/leasehold-go/leasehold/lease"

// WithoutQueue returns b without its queue: it is no lease.Queuer, whatever b is, so whoever waits for a name has to poll.
func WithoutQueue(b lease.Backend) lease.Backend { return onlyBackend{b} }

// onlyBackend has the methods of lease.Backend and no others.
type onlyBackend struct{ lease.Backend }
