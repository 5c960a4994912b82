// upload
