package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/lease"
)

// permanent are the beginnings of replies that trying again will not mend. What is not listed here is unknown: READONLY,
// LOADING, OOM, BUSY, MISCONF, TRYAGAIN, CLUSTERDOWN, MASTERDOWN and the network.
var permanent = []string{
	"WRONGTYPE", "NOPERM", "NOAUTH", "WRONGPASS", "CROSSSLOT", "NOPROTO",
	"NOSCRIPT", // to EVAL: EVALSHA is followed by EVAL
	"ERR unknown command", "ERR unsupported command",
}

// permanentInside are parts of such replies where the server speaks of a script: older servers put the reply of the failed
// command in the middle.
var permanentInside = []string{
	"WRONGTYPE ", "NOPERM ", "The user executing the script can't", "ACL failure in script", "leasehold: ",
	"Unknown Redis command called from script", "non local key in a cluster",
}

// classify marks an error that trying again will not mend.
func classify(err error) error {
	if err == nil {
		return nil // the usual case, and errors.As allocates
	}
	var reply goredis.Error
	if !errors.As(err, &reply) {
		return err
	}
	text := reply.Error()
	for _, p := range permanent {
		if strings.HasPrefix(text, p) {
			return lease.Permanent(err)
		}
	}
	for _, p := range permanentInside {
		if strings.Contains(text, p) {
			return lease.Permanent(err)
		}
	}
	return err
}

// noReplyError says that a request was given up: the bound on one request was over, not the caller's ctx. It is no context error,
// since those say that the caller has had enough.
type noReplyError struct{ bound time.Duration }

func (e *noReplyError) Error() string { return fmt.Sprintf("redis: no reply within %v", e.bound) }

// replyError says that the server replied with something no script of ours replies.
func replyError(v any) error {
	return lease.Permanent(fmt.Errorf("redis: unexpected reply %.100q", fmt.Sprint(v)))
}

func wrap(verb, name string, err error) error { return fmt.Errorf("%s %q: %w", verb, name, err) }

// isReply reports whether err says that the server replied, if only with an error. A nil err is a reply too.
func isReply(err error) bool {
	if err == nil {
		return true
	}
	var reply goredis.Error
	return errors.As(err, &reply)
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
