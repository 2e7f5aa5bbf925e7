package daemon

import (
	"context"
	"fmt"
	"time"

	"tandem/models"
)

// troubledTrunks is how many trunks doctor names.
const troubledTrunks = 20

// examineTrunks says which active outbound trunks no node can use, by the best report of all nodes: they are warnings, since most are the carriers' or
// their customers' to mend.
func (o *Operator) examineTrunks(ctx context.Context) ([]Check, error) {
	var checks []Check
	active, troubled, seen := true, 0, 0
	for page := (models.Page{Limit: models.MaxPageLimit}); ; {
		trunks, next, err := o.store.FindTrunks(ctx, models.AnyCustomer, models.TrunkFilter{Direction: models.Outbound, Active: &active}, page)
		if err != nil {
			return nil, fmt.Errorf("list trunks: %w", err)
		}
		ids := make([]string, len(trunks))
		for i := range trunks {
			ids[i] = trunks[i].ID
		}
		reports, err := o.store.GatewayStatuses(ctx, ids)
		if err != nil {
			return nil, fmt.Errorf("read what nodes say of trunks: %w", err)
		}
		for i := range trunks {
			report, told := reports[trunks[i].ID]
			if !told {
				continue // no node is connected, which is told of, or none has looked yet
			}
			seen++
			finding := trunkTrouble(&trunks[i], &report)
			if finding == "" {
				continue
			}
			if troubled++; troubled <= troubledTrunks {
				checks = append(checks, Check{OK: true, Warning: true, Subject: "trunk " + trunks[i].GatewayName, Finding: finding, Fix: "tandem trunks test " + trunks[i].ID})
			}
		}
		if next == "" {
			break
		}
		page.Cursor = next
	}
	switch {
	case troubled > troubledTrunks:
		checks = append(checks, Check{OK: true, Warning: true, Subject: "trunks", Finding: fmt.Sprintf("%d more cannot be used", troubled-troubledTrunks), Fix: "tandem trunks ls"})
	case seen > 0 && troubled == 0:
		checks = append(checks, Check{OK: true, Subject: "trunks", Finding: fmt.Sprintf("%d outbound trunks can be used", seen)})
	}
	return checks, nil
}

// trunkTrouble says why a trunk cannot be used, empty where it can: the best report is the one that calls go by.
func trunkTrouble(trunk *models.Trunk, best *models.GatewayStatus) string {
	at := best.UpdatedAt.Format(time.DateTime)
	switch {
	case trunk.Register && best.State != "REGED":
		return fmt.Sprintf("is registered on no node: %s at %s", best.State, at)
	case best.Status == "DOWN":
		return fmt.Sprintf("does not answer OPTIONS to any node: %s at %s", best.State, at)
	}
	return ""
}
