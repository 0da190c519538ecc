module quorate/compare/front

go 1.24
