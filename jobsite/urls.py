urlpatterns=[]
