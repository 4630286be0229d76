module holocast

go 1.26
