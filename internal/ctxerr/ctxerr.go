// Package ctxerr reports why a context ended without hiding either half of the answer.
package ctxerr

import (
	"context"
	"errors"
	"fmt"
)

// Of returns nil while ctx is live; afterwards an error that matches both ctx.Err and context.Cause, so that callers can ask
// for context.Canceled as well as for the reason that was given.
func Of(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
