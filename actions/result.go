package actions

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// result is one field of what an action leads to: of the body's result at result_url, of variables.last_result and of
// the event call.action_completed.
type result struct {
	name string
	kind resultKind
	// words are all that a resultWord can be.
	words []string
	doc   string
}

type resultKind string

const (
	resultWord   resultKind = "word"
	resultText   resultKind = "string"
	resultNumber resultKind = "number"
	resultFlag   resultKind = "boolean"
	resultObject resultKind = "object"
	resultList   resultKind = "list"
)

// resultPlace are the fields that say which action a result belongs to; every result has them.
var resultPlace = []string{"action", "index", "id"}

// outcomes is the result field outcome. Every action that takes time can be interrupted by live control.
func outcomes(doc string, words ...string) result {
	return result{"outcome", resultWord, append(words, "interrupted"), doc}
}

// CheckResult holds the result of an action to what the documentation promises of the verb: known fields, of their kind,
// and known words. The tests of whatever makes results call it.
func CheckResult(verb string, made map[string]any) error {
	promised, ok := resultsOf(verb)
	if !ok {
		return fmt.Errorf("check a result: no verb %q", verb)
	}
	raw, err := json.Marshal(made)
	if err != nil {
		return fmt.Errorf("check a result of %s: %w", verb, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return fmt.Errorf("check a result of %s: %w", verb, err)
	}
	for name, value := range fields {
		if slices.Contains(resultPlace, name) {
			continue
		}
		at := slices.IndexFunc(promised, func(r result) bool { return r.name == name })
		if at < 0 {
			return fmt.Errorf("result of %s: field %q is not documented", verb, name)
		}
		if err := promised[at].check(value); err != nil {
			return fmt.Errorf("result of %s: %w", verb, err)
		}
	}
	return nil
}

// doneResult is what an action tells that has no result of its own, and a result_url.
var doneResult = []result{outcomes("That it is done.", "done")}

func resultsOf(name string) ([]result, bool) {
	for _, v := range verbs {
		switch {
		case v.name != name:
			continue
		case len(v.results) == 0:
			return doneResult, true
		default:
			return v.results, true
		}
	}
	return nil, false
}

func (r result) check(value any) error {
	kind := resultText
	switch v := value.(type) {
	case string:
		if r.kind == resultWord {
			if !slices.Contains(r.words, v) {
				return fmt.Errorf("field %q must be one of %s, was %q", r.name, strings.Join(r.words, ", "), v)
			}
			kind = resultWord
		}
	case float64:
		kind = resultNumber
	case bool:
		kind = resultFlag
	case map[string]any:
		kind = resultObject
	case []any:
		kind = resultList
	default:
		return fmt.Errorf("field %q must be a %s, was null", r.name, r.kind)
	}
	if kind != r.kind {
		return fmt.Errorf("field %q must be a %s, was %v", r.name, r.kind, value)
	}
	return nil
}
